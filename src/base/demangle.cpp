#include "base/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace attnscope {

std::string demangle(std::string_view name) {
  name = name.substr(0, kLongestSymbol);
  if (name.ends_with(".kd")) name.remove_suffix(3);
  if (!name.starts_with("_Z")) return std::string(name);
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? std::string(text.get()).substr(0, kLongestSymbol) : std::string(name);
}

}  // namespace attnscope
