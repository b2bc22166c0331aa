#include "capi/fence.h"

#include "attnscope/attnscope.h"

#include <cstdlib>
#include <cstring>

namespace attnscope::capi {

LastError& last_error() {
  thread_local LastError error;
  return error;
}

int record_error(const Error& error) {
  LastError& last = last_error();
  last.message = error.message;
  last.remedy = error.remedy;
  switch (error.code) {
    case ErrorCode::kInvalidArgument: return ATTNSCOPE_E_ARGUMENT;
    case ErrorCode::kBadInput: return ATTNSCOPE_E_INPUT;
    case ErrorCode::kIo: return ATTNSCOPE_E_IO;
    case ErrorCode::kUnavailable: return ATTNSCOPE_E_UNAVAILABLE;
    case ErrorCode::kOutOfMemory: return ATTNSCOPE_E_MEMORY;
    case ErrorCode::kNo: return ATTNSCOPE_E_NO;
    case ErrorCode::kInternal: return ATTNSCOPE_E_INTERNAL;
  }
  return ATTNSCOPE_E_INTERNAL;
}

Status give_text(char** to, const std::string& text) {
  if (!to) return fail(ErrorCode::kInvalidArgument, "nowhere to put the text");
  *to = static_cast<char*>(std::malloc(text.size() + 1));
  if (!*to) return fail(ErrorCode::kOutOfMemory, "out of host memory");
  std::memcpy(*to, text.c_str(), text.size() + 1);
  return {};
}

}  // namespace attnscope::capi
