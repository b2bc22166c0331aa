#pragma once
// Error helpers for code inside the library: exit codes and one-line formatting.

#include "attnscope/result.h"

#include <string>

namespace attnscope {

// Exit codes of the command line, one table: 0 fine · 1 the answer is no · 2 usage · 3 bad input file ·
// 4 device or backend not available · 70 internal error.
constexpr int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNo: return 1;
    case ErrorCode::kInvalidArgument: return 2;
    case ErrorCode::kBadInput: return 3;
    case ErrorCode::kIo: return 3;
    case ErrorCode::kUnavailable: return 4;
    case ErrorCode::kOutOfMemory: return 4;
    case ErrorCode::kInternal: return 70;
  }
  return 70;
}

// "message; remedy" on one line, safe for a terminal (see terminal_safe).
std::string one_line(const Error& error);

}  // namespace attnscope
