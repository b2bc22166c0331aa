// Where the table comes from, and how `auto` goes by it.
#include "attention/backend.h"
#include "attention/order_table.h"
#include "base/cache_folder.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>

namespace attnscope {

std::string_view embedded_orders();  // src/attention/orders, one after another; generated

namespace {

constexpr double kMargin = 0.97;  // of the other's time: what is closer is noise

// Of the embedded tables, the one for the device. The driver may be any: the kernels are the same.
MeasuredOrder built_in(const DeviceIdentity& device) {
  constexpr std::string_view kBegin = "attnscope.order/1\n";
  std::string_view all = embedded_orders();
  while (!all.empty()) {
    const size_t next = all.find(kBegin, 1);
    const Result<OrderTable> table = parse_order_table(all.substr(0, next));
    if (table && table->device.name == device.name && table->device.arch == device.arch)
      return {*table, "built in for " + device.name, {}};
    all = next == std::string_view::npos ? std::string_view() : all.substr(next);
  }
  return {};
}

// Why a file's table is not for this device and version; empty when it is.
std::string stale(const OrderTable& table, const DeviceIdentity& device) {
  const auto differs = [](const char* what, const std::string& there, const std::string& here) {
    return fmt::format("it was measured {} {}, this is {}", what, terminal_safe(there, 80),
                       terminal_safe(here, 80));
  };
  if (table.device.name != device.name) return differs("on", table.device.name, device.name);
  if (table.device.arch != device.arch) return differs("on", table.device.arch, device.arch);
  if (table.device.driver != device.driver)
    return differs("with driver", fmt::format("{}", table.device.driver), fmt::format("{}", device.driver));
  if (table.library != ATTNSCOPE_VERSION) return differs("by attnscope", table.library, ATTNSCOPE_VERSION);
  return {};
}

MeasuredOrder from_file(const std::string& path, const DeviceIdentity& device) {
  const auto ignored = [&](const std::string& why) {
    return MeasuredOrder{{}, {}, fmt::format("{} is ignored: {}", terminal_safe(path), why)};
  };
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (const Status trusted = trusted_folder(folder.empty() ? "." : folder); !trusted)
    return ignored(trusted.error().message);
  const Result<std::string> text = read_file_bounded(path, kMostOrderBytes);
  if (!text) return ignored(text.error().message);
  Result<OrderTable> table = parse_order_table(*text);
  if (!table) return ignored(table.error().message);
  if (const std::string why = stale(*table, device); !why.empty()) return ignored(why);
  return {std::move(*table), terminal_safe(path), {}};
}

struct Known {
  std::mutex mutex;
  std::map<std::pair<DeviceType, int>, const MeasuredOrder*> by_device;
  std::deque<MeasuredOrder> all;  // the forgotten ones too: references to them stay valid
};
Known& known() {
  static Known* all = new Known();
  return *all;
}

}  // namespace

Result<std::string> order_path(const DeviceIdentity& device) {
  std::string name;
  for (const char c : device.name + "-" + device.arch) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0)
      name += static_cast<char>(std::tolower(byte));
    else if (!name.ends_with('-'))
      name += '-';
  }
  ATTNSCOPE_ASSIGN(const std::string folder, cache_folder_path("orders"));
  return fmt::format("{}/{}.order", folder, name.substr(0, 120));
}

MeasuredOrder load_order(const DeviceIdentity& device, std::string_view setting) {
  if (setting == "off") return {{}, {}, "ATTNSCOPE_ORDER=off"};
  if (device.name.empty()) return {{}, {}, "the device is not known by name"};
  if (!setting.empty()) return from_file(std::string(setting), device);
  std::string ignored;
  if (const Result<std::string> path = order_path(device); path) {
    std::error_code error;
    if (std::filesystem::exists(*path, error)) {
      MeasuredOrder order = from_file(*path, device);
      if (!order.source.empty()) return order;
      ignored = std::move(order.why_not);
    }
  }
  MeasuredOrder order = built_in(device);
  if (!ignored.empty())
    order.why_not = ignored;
  else if (order.source.empty())
    order.why_not = "no order was measured on this device: attnscope compare --tune";
  return order;
}

const MeasuredOrder& measured_order(const Device& device) {
  const std::scoped_lock lock(known().mutex);
  const MeasuredOrder*& order = known().by_device[{device.type, device.index}];
  if (order == nullptr) {
    const char* setting = std::getenv("ATTNSCOPE_ORDER");
    order = &known().all.emplace_back(load_order(device_identity(device), setting != nullptr ? setting : ""));
  }
  return *order;
}

void forget_measured_orders() {
  const std::scoped_lock lock(known().mutex);
  known().by_device.clear();
}

AutomaticOrder automatic_order(const Request& request, std::vector<const Backend*> preferred,
                               const MeasuredOrder& measured) {
  AutomaticOrder order{std::move(preferred), nullptr, measured.why_not};
  if (measured.source.empty()) return order;
  const OrderShape shape = order_shape(request);
  order.point = nearest_point(measured.table, shape);
  const std::string aside = measured.why_not.empty() ? "" : "; " + measured.why_not;
  if (order.point == nullptr) {
    order.note =
        fmt::format("nothing like {} is in the measured order {}{}", to_text(shape), measured.source, aside);
    return order;
  }
  order.note = fmt::format("near {}, {}{}", to_text(order.point->shape), measured.source, aside);
  const auto time_of = [&](const Backend* backend) {
    for (const OrderTime& time : order.point->times)
      if (time.backend == backend->name()) return time.us;
    return -1.0;
  };
  std::vector<size_t> places;  // that measured backends hold
  std::vector<const Backend*> by_time;
  for (size_t i = 0; i < order.backends.size(); ++i) {
    const double us = time_of(order.backends[i]);
    if (us < 0) continue;
    places.push_back(i);
    auto at = by_time.end();
    while (at != by_time.begin() && us < kMargin * time_of(*(at - 1))) --at;
    by_time.insert(at, order.backends[i]);
  }
  for (size_t i = 0; i < places.size(); ++i) order.backends[places[i]] = by_time[i];
  return order;
}

}  // namespace attnscope
