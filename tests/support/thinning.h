#pragma once
// Sanitized programs run tens of times slower: the large grids take every n-th of their requests there,
// spread so that every feature and instruction set still comes up, and say so. ATTNSCOPE_GRID=whole takes all
// of them, as a program without sanitizers does; ATTNSCOPE_GRID=full also the combinations that only come in
// rotation.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace attnscope::testing {

inline std::string_view grid_choice() {
  const char* grid = std::getenv("ATTNSCOPE_GRID");
  return grid != nullptr ? grid : "";
}
inline bool full_grid() {
  return grid_choice() == "full";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Whether request n of a grid is to run; each `every`-th is when the program is sanitized.
inline bool thinned_out(uint64_t n, uint64_t every) {
  if (!kSanitized || full_grid() || grid_choice() == "whole") return false;
  static const bool said = [every] {
    std::printf("sanitized: about one request in %d of the grid is run (all with ATTNSCOPE_GRID=whole)\n",
                static_cast<int>(every));
    return true;
  }();
  return said && n % every != 0;
}

}  // namespace attnscope::testing
