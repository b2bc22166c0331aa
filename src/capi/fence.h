#pragma once
// What every function of the C ABI runs inside: no exception leaves, errors become codes and the thread's
// message.

#include "attnscope/result.h"

#include <exception>
#include <new>
#include <string>

namespace attnscope::capi {

struct LastError {
  std::string message, remedy;
};
LastError& last_error();
int record_error(const Error& error);
// A copy that the caller frees with attnscope_free().
[[nodiscard]] Status give_text(char** to, const std::string& text);

template <typename F>
int fenced(F&& f) noexcept {
  try {
    const Status status = f();
    return status ? 0 : record_error(status.error());
  } catch (const std::bad_alloc&) {
    return record_error(Error{ErrorCode::kOutOfMemory, "out of host memory", ""});
  } catch (const std::exception& e) {
    return record_error(Error{ErrorCode::kInternal, e.what(), ""});
  } catch (...) {
    return record_error(Error{ErrorCode::kInternal, "an unknown exception", ""});
  }
}

}  // namespace attnscope::capi
