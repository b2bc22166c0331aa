#pragma once
// Which backend was fastest where: the table that `attnscope compare --tune` writes and `auto` reads.
//
// A text file, one line a header field, then one line a point:
//   attnscope.order/1
//   device NVIDIA H200
//   arch sm_90
//   driver 13000
//   library 0.1.0
//   bf16 causal 8,16,16,1024,1024,64,64 flash=59.1 cudnn=61.9 math=2257
// A point is dtype, what is asked for besides, B,H,Hkv,L,S,E,Ev, and microseconds of every backend that took
// it.
// '#' begins a comment.

#include "attnscope/attention.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// The device that times hold for.
struct DeviceIdentity {
  std::string name;    // "NVIDIA H200", a processor's model name
  std::string arch;    // "sm_90", "x86_64, 8 threads"
  int64_t driver = 0;  // CUDA version of the driver, 13000 for 13.0; 0 for a CPU
  friend bool operator==(const DeviceIdentity&, const DeviceIdentity&) = default;
};
// Defined beside the table of backends (src/backends). Empty name: not known.
DeviceIdentity device_identity(const Device& device);

// A request as far as the order of the backends depends on it.
struct OrderShape {
  DType dtype = DType::kBF16;
  std::string features;  // "full", "causal", "causal+window": all that is asked for, joined in a fixed order
  int64_t batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, head_dim = 1, value_dim = 1;
  friend bool operator==(const OrderShape&, const OrderShape&) = default;
};
OrderShape order_shape(const Request& request);
// "bf16 causal 8,16,16,1024,1024,64,64"
std::string to_text(const OrderShape& shape);

struct OrderTime {
  std::string backend;
  double us = 0;
};
struct OrderPoint {
  OrderShape shape;
  std::vector<OrderTime> times;  // fastest first
};

struct OrderTable {
  DeviceIdentity device;
  std::string library;  // version of attnscope that measured
  std::vector<OrderPoint> points;
};

inline constexpr size_t kMostOrderBytes = size_t{1} << 20;
inline constexpr size_t kMostOrderPoints = 4096;

// kBadInput names the line and what is wrong with it. The text is hostile: bounded, and escaped in messages.
[[nodiscard]] Result<OrderTable> parse_order_table(std::string_view text);
std::string write_order_table(const OrderTable& table);

// The measured point most like the shape: same features, same kind of dtype, head sizes within a factor
// of 1.5, lengths within 2 (beyond 8192 all are long), batch · heads within 4. Null when there is none.
const OrderPoint* nearest_point(const OrderTable& table, const OrderShape& shape);

// What `auto` goes by on a device.
struct MeasuredOrder {
  OrderTable table;
  std::string source;   // "built in for NVIDIA H200", the file's path; empty: there is no table to go by
  std::string why_not;  // then why: none was made, or why the one there is was not believed
};
// The user's file if it is there and of this device, driver and version; else the one built in for the
// device. ATTNSCOPE_ORDER names another file, or is off. Read once per device and process.
const MeasuredOrder& measured_order(const Device& device);
// The same without memory, with everything given; `setting` is ATTNSCOPE_ORDER's value.
MeasuredOrder load_order(const DeviceIdentity& device, std::string_view setting);
// Where the user's file of a device lies. kUnavailable: there is no cache folder.
[[nodiscard]] Result<std::string> order_path(const DeviceIdentity& device);
// A table was written or a setting changed: measured_order() reads again. References from before stay valid.
void forget_measured_orders();

// The backends in the order in which `auto` tries them. Those that were measured near the request stand by
// their times, in the places that the preferred order gives to them together; one must be 3 % faster to pass
// another. `why` is set to the reason to show with the winner.
class Backend;
struct AutomaticOrder {
  std::vector<const Backend*> backends;
  const OrderPoint* point = nullptr;  // gone by; null: the default order
  std::string note;  // "near bf16 causal …, built in for NVIDIA H200", or why it is the default order
};
AutomaticOrder automatic_order(const Request& request, std::vector<const Backend*> preferred,
                               const MeasuredOrder& measured);

}  // namespace attnscope
