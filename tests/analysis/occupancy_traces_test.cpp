// Kineto's formula as we understand it, against every figure that real traces report.
#include "analysis/occupancy.h"
#include "formats/chrome/reader.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

namespace attnscope {
namespace {

struct Tally {
  uint64_t compared = 0, wrong = 0, false_zeros = 0, honest_zeros = 0, unexplained = 0;
};

void add_trace(const std::filesystem::path& path, Tally& tally) {
  const Result<trace::Trace> t = formats::chrome::read_file(path.string());
  if (!t) return;
  for (trace::EventIndex e = 0; e < t->size(); ++e) {
    if (t->cls(e) != trace::EventClass::kKernel) continue;
    const trace::KernelConfig& config = t->kernel_config(e);
    const trace::DeviceProperties* device = t->device(t->queue(e).device);
    // PyTorch 1.8 wrote a theoretical figure under another name; it has no device properties either.
    if (!device || config.reported_occupancy_pct < 0) continue;
    const std::optional<int> estimate = kineto_estimate(*device, config);
    if (!estimate) continue;
    ++tally.compared;
    if (*estimate != static_cast<int>(config.reported_occupancy_pct)) {
      if (++tally.wrong <= 5)
        ADD_FAILURE() << path.filename() << " event " << t->ordinal(e) << ": reported "
                      << config.reported_occupancy_pct << ", computed " << *estimate;
    }
    switch (zero_cause(*device, config)) {
      case ZeroCause::kNotZero: break;
      case ZeroCause::kFalse: ++tally.false_zeros; break;
      case ZeroCause::kSmallGrid: ++tally.honest_zeros; break;
      case ZeroCause::kUnexplained: ++tally.unexplained; break;
    }
  }
}

TEST(OccupancyOfTraces, EveryReportedFigureIsReproduced) {
  Tally tally;
  const std::filesystem::path root = ATTNSCOPE_SOURCE_DIR;
  for (const std::filesystem::path& folder : {root / "tests/data/traces", root / "../shared/traces"}) {
    std::error_code error;
    for (auto at = std::filesystem::recursive_directory_iterator(folder, error);
         !error && at != std::filesystem::recursive_directory_iterator(); ++at)
      if (at->is_regular_file()) add_trace(at->path(), tally);
  }
  std::printf(
      "%llu figures compared, %llu differ; zeros: %llu false, %llu of small grids, %llu unexplained\n",
      static_cast<unsigned long long>(tally.compared), static_cast<unsigned long long>(tally.wrong),
      static_cast<unsigned long long>(tally.false_zeros), static_cast<unsigned long long>(tally.honest_zeros),
      static_cast<unsigned long long>(tally.unexplained));
  if (tally.compared == 0) GTEST_SKIP() << "no traces at hand";
  EXPECT_EQ(tally.wrong, 0u);
  EXPECT_EQ(tally.unexplained, 0u);
}

}  // namespace
}  // namespace attnscope
