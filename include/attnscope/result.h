#pragma once
// Result<T>: how every foreseeable failure is returned. No exception leaves the library.

#include <tl/expected.hpp>

#include <source_location>
#include <string>
#include <utility>

namespace attnscope {

// Each code maps to one exit code of the command line (see exit_code in src/base/error.h).
enum class ErrorCode {
  kInvalidArgument,  // the caller's values are wrong: usage
  kBadInput,         // a file's content is wrong
  kIo,               // a file cannot be opened, read or written
  kUnavailable,      // the device, driver, library or backend is not there or cannot do this
  kOutOfMemory,      // would not fit; checked before allocating where possible
  kNo,               // the question was answered, and the answer is no (guess broken, regression)
  kInternal,         // a library below us failed in a way that is not the caller's doing
};

// What happened (with the values), and what to do about it.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string remedy;  // empty when there is nothing to be done
  std::source_location where = std::source_location::current();
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// `return fail(ErrorCode::kBadInput, "file is empty", "record it again");`
[[nodiscard]] inline tl::unexpected<Error> fail(
    ErrorCode code, std::string message, std::string remedy = {},
    std::source_location where = std::source_location::current()) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(remedy), where});
}

}  // namespace attnscope

#define ATTNSCOPE_CONCAT_(a, b) a##b
#define ATTNSCOPE_CONCAT(a, b) ATTNSCOPE_CONCAT_(a, b)
// ATTNSCOPE_TRY(expr): returns the error of a Status or Result, else goes on.
#define ATTNSCOPE_TRY(expr)                                                        \
  do {                                                                             \
    auto&& attnscope_try_ = (expr);                                                \
    if (!attnscope_try_) return tl::unexpected(std::move(attnscope_try_).error()); \
  } while (0)
// ATTNSCOPE_ASSIGN(auto x, expr): x = value of a Result, or returns its error.
#define ATTNSCOPE_ASSIGN_IMPL(tmp, lhs, expr)              \
  auto tmp = (expr);                                       \
  if (!tmp) return tl::unexpected(std::move(tmp).error()); \
  lhs = std::move(*tmp)
#define ATTNSCOPE_ASSIGN(lhs, expr) ATTNSCOPE_ASSIGN_IMPL(ATTNSCOPE_CONCAT(attnscope_r_, __LINE__), lhs, expr)
