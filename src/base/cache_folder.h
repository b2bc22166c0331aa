#pragma once
// The user's cache on disk: compiled kernels and measured orders. What lies there is run or believed, so a
// folder that somebody else could write to is not used.

#include "attnscope/result.h"

#include <string>
#include <string_view>

namespace attnscope {

// $ATTNSCOPE_CACHE, else $XDG_CACHE_HOME/attnscope, else ~/.cache/attnscope, and below it `part`
// ("kernels"). Nothing is made. kUnavailable: none of the variables is set to an absolute path.
[[nodiscard]] Result<std::string> cache_folder_path(std::string_view part);

// May what lies in `folder` be believed? It is the user's or root's, and nobody else may write to it. kIo
// with the reason when it is not there or not so.
[[nodiscard]] Status trusted_folder(const std::string& folder);

// Makes the folder and those above it, mode 0700 each, where they are missing; then as trusted_folder().
[[nodiscard]] Status make_cache_folder(const std::string& folder);

// Replaces the file in one step: a temporary beside it, written, synced, renamed; mode 0600. Readers see the
// old or the new content, never half of one, also with several writers at once. kIo names the failed step.
[[nodiscard]] Status replace_file(const std::string& path, std::string_view content);

// The whole file. kIo: not there, unreadable, or not a regular file; kBadInput: more than max_bytes.
[[nodiscard]] Result<std::string> read_file_bounded(const std::string& path, size_t max_bytes);

}  // namespace attnscope
