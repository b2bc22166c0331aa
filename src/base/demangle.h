#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attnscope {

inline constexpr size_t kLongestSymbol =
    8192;  // characters looked at and returned; template names reach 4 KiB

// A C++ symbol as source text; a name that is not mangled, or not decodable, unchanged. AMD's kernel
// descriptor suffix ".kd" is dropped.
std::string demangle(std::string_view name);

}  // namespace attnscope
