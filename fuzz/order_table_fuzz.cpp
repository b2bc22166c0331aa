// The measured orders of backends are files in a cache that anything may have written to.
#include "attention/order_table.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto table = attnscope::parse_order_table({reinterpret_cast<const char*>(data), size});
  if (!table) {
    if (table.error().message.empty()) std::abort();
    return 0;
  }
  const auto again = attnscope::parse_order_table(attnscope::write_order_table(*table));
  if (!again || again->points.size() != table->points.size() || !(again->device == table->device))
    std::abort();
  for (const attnscope::OrderPoint& point : table->points)
    if (attnscope::nearest_point(*table, point.shape) == nullptr) std::abort();
  return 0;
}
