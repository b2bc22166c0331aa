#include "cli/compare_options.h"

#include "base/text.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

namespace attnscope::cli {
namespace {

using compare::Problem;

constexpr int64_t kLargestSize = int64_t{1} << 40;

template <typename... Args>
tl::unexpected<Error> usage(std::string remedy, fmt::format_string<Args...> message, Args&&... args) {
  return fail(ErrorCode::kInvalidArgument, fmt::format(message, std::forward<Args>(args)...),
              std::move(remedy));
}

Result<int64_t> whole_number(const char* option, std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    return usage("", "{}: '{}' is not a whole number", option, terminal_safe(text, 40));
  if (value < least || value > most)
    return usage("", "{}: {} is outside {} … {}", option, value, least, most);
  return value;
}

Result<double> real_number(const char* option, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return usage("", "{}: '{}' is not a finite number", option, terminal_safe(text, 40));
  return value;
}

Status parse_shape(const std::string& text, Problem& p) {
  constexpr std::array<const char*, 4> kFour{"B", "H", "S", "D"};
  constexpr std::array<const char*, 7> kSeven{"B", "H", "Hkv", "L", "S", "E", "Ev"};
  const auto parts = split(text, ',');
  if (parts.size() != 4 && parts.size() != 7)
    return usage("", "--shape needs 4 numbers B,H,S,D or 7 numbers B,H,Hkv,L,S,E,Ev; got {} ({})",
                 parts.size(), terminal_safe(text, 60));
  std::vector<int64_t> n;
  for (size_t i = 0; i < parts.size(); ++i) {
    ATTNSCOPE_ASSIGN(const int64_t value,
                     whole_number("--shape", parts[i], std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max()));
    if (value < 1 || value > kLargestSize)
      return usage("", "--shape: {} is {}; every size must be from 1 to 2^40 ({})",
                   parts.size() == 4 ? kFour[i] : kSeven[i], value, terminal_safe(text, 60));
    n.push_back(value);
  }
  p.batch = n[0];
  p.heads = n[1];
  if (n.size() == 4) {
    p.kv_heads = n[1];
    p.q_len = p.kv_len = n[2];
    p.head_dim = p.value_dim = n[3];
  } else {
    p.kv_heads = n[2];
    p.q_len = n[3];
    p.kv_len = n[4];
    p.head_dim = n[5];
    p.value_dim = n[6];
  }
  if (p.heads % p.kv_heads != 0)
    return usage("H must be a multiple of Hkv", "--shape: {} query heads do not divide over {} kv heads",
                 p.heads, p.kv_heads);
  return {};
}

Status parse_dtype(const std::string& text, Problem& p) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    if (text == dtype_name(t)) {
      p.dtype = t;
      return {};
    }
  return usage("known: f64, f32, f16, bf16", "--dtype: '{}' is no float type", terminal_safe(text, 40));
}

Status parse_causal(const std::string& text, Problem& p) {
  if (text.empty() || text == "top-left") {
    p.causal = CausalMode::kTopLeft;
  } else if (text == "lower-right") {
    p.causal = CausalMode::kLowerRight;
  } else if (text == "none") {
    p.causal = CausalMode::kNone;
  } else {
    return usage("known: top-left (the default), lower-right, none", "--causal: '{}' is no alignment",
                 terminal_safe(text, 40));
  }
  return {};
}

// bool | bias, then optionally : and up to four sizes, each a number or one of the letters B H L S.
Status parse_mask(const std::string& text, Problem& p) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  if (kind != "bool" && kind != "bias")
    return usage("write bool or bias, and sizes if they are not 1,1,L,S: --mask bias:B,1,L,S",
                 "--mask: '{}' is no kind of mask", terminal_safe(kind, 40));
  p.mask_kind = kind == "bool" ? MaskKind::kBool : MaskKind::kBias;
  p.mask_sizes = {1, 1, p.q_len, p.kv_len};
  if (colon == std::string::npos) return {};
  const auto parts = split(std::string_view(text).substr(colon + 1), ',');
  if (parts.size() > 4)
    return usage("", "--mask has {} sizes; at most 4 (B,H,L,S), aligned at the right", parts.size());
  p.mask_sizes = {1, 1, 1, 1};
  const std::array<int64_t, 4> scores{p.batch, p.heads, p.q_len, p.kv_len};
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t d = 4 - parts.size() + i;
    const size_t letter =
        parts[i].size() == 1 ? std::string_view("BHLS").find(parts[i][0]) : std::string::npos;
    if (letter != std::string::npos) {
      p.mask_sizes[d] = scores[letter];
      continue;
    }
    ATTNSCOPE_ASSIGN(p.mask_sizes[d], whole_number("--mask", parts[i], 1, kLargestSize));
  }
  for (size_t d = 0; d < 4; ++d)
    if (p.mask_sizes[d] != 1 && p.mask_sizes[d] != scores[d])
      return usage("each size must be 1 or that of the scores",
                   "--mask [{}] does not broadcast to the scores [{}]", fmt::join(p.mask_sizes, ","),
                   fmt::join(scores, ","));
  return {};
}

Status parse_window(const std::string& text, Problem& p) {
  const auto parts = split(text, ',');
  if (parts.size() > 2) return usage("", "--window takes LEFT or LEFT,RIGHT; got {} numbers", parts.size());
  ATTNSCOPE_ASSIGN(p.window.left, whole_number("--window", parts[0], -1, kLargestSize));
  if (parts.size() == 2) {
    ATTNSCOPE_ASSIGN(p.window.right, whole_number("--window", parts[1], -1, kLargestSize));
  }
  return {};
}

Status parse_lengths(const std::string& text, Problem& p) {
  for (const std::string_view part : split(text, ',')) {
    ATTNSCOPE_ASSIGN(const int64_t length, whole_number("--lengths", part, 0, kLargestSize));
    p.lengths.push_back(length);
  }
  if (p.lengths.size() == 1 && p.batch <= 1'000'000)
    p.lengths.assign(static_cast<size_t>(p.batch), p.lengths.front());
  return {};
}

Status parse_scalars(const CompareOptions& o, Problem& p) {
  if (!o.scale.empty()) {
    ATTNSCOPE_ASSIGN(p.scale, real_number("--scale", o.scale));
    if (std::fabs(*p.scale) > std::numeric_limits<float>::max())
      return usage("scores are computed in f32", "--scale {} does not fit f32", *p.scale);
  }
  if (!o.softcap.empty()) {
    ATTNSCOPE_ASSIGN(p.softcap, real_number("--softcap", o.softcap));
    const bool vanishes = p.softcap > 0 && p.softcap < std::numeric_limits<float>::min();
    if (p.softcap > std::numeric_limits<float>::max() || vanishes)
      return usage("scores are computed in f32", "--softcap {} does not fit f32", p.softcap);
    if (p.softcap < 0) return usage("0 turns it off", "--softcap is {}; it must be at least 0", p.softcap);
  }
  if (!o.dropout.empty()) {
    ATTNSCOPE_ASSIGN(p.dropout, real_number("--dropout", o.dropout));
    if (p.dropout < 0 || p.dropout > 1)
      return usage("", "--dropout is {}; it must be between 0 and 1", p.dropout);
  }
  if (!o.seed.empty()) {
    ATTNSCOPE_ASSIGN(const int64_t seed,
                     whole_number("--seed", o.seed, 0, std::numeric_limits<int64_t>::max()));
    p.seed = static_cast<uint64_t>(seed);
  }
  if (!o.threads.empty()) {
    ATTNSCOPE_ASSIGN(const int64_t threads, whole_number("--threads", o.threads, 1, 4096));
    p.threads = static_cast<int>(threads);
  }
  return {};
}

Status parse_problem(const CompareOptions& o, Problem& p) {
  if (!o.shape.empty()) {
    ATTNSCOPE_TRY(parse_shape(o.shape, p));
    p.causal = CausalMode::kNone;  // a stated problem is what was stated
  }
  if (!o.dtype.empty()) ATTNSCOPE_TRY(parse_dtype(o.dtype, p));
  if (o.causal_given) ATTNSCOPE_TRY(parse_causal(o.causal, p));
  if (!o.window.empty()) ATTNSCOPE_TRY(parse_window(o.window, p));
  if (!o.mask.empty()) ATTNSCOPE_TRY(parse_mask(o.mask, p));
  if (!o.lengths.empty()) ATTNSCOPE_TRY(parse_lengths(o.lengths, p));
  ATTNSCOPE_TRY(parse_scalars(o, p));
  if (!o.layout.empty() && o.layout != "bhsd" && o.layout != "bshd")
    return usage("known: bhsd (heads outside), bshd (heads inside)", "--layout: '{}' is no layout",
                 terminal_safe(o.layout, 40));
  p.layout = o.layout == "bshd" ? compare::Layout::kBshd : compare::Layout::kBhsd;
  p.train = o.train;
  return {};
}

Status parse_measure(const CompareOptions& o, compare::MeasureOptions& m) {
  m.cold = o.cold;
  if (!o.rounds.empty()) {
    ATTNSCOPE_ASSIGN(const int64_t rounds, whole_number("--rounds", o.rounds, 1, 1'000'000));
    m.rounds = static_cast<int>(rounds);
  }
  if (!o.min_time.empty()) {
    ATTNSCOPE_ASSIGN(m.min_time_s, real_number("--min-time", o.min_time));
    if (m.min_time_s < 0 || m.min_time_s > 3600)
      return usage("", "--min-time is {} s; it must be between 0 and 3600", m.min_time_s);
  }
  return {};
}

Status check_directory(const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path) || access(path.c_str(), W_OK) != 0)
    return fail(ErrorCode::kIo,
                fmt::format("--trace-dir: cannot write into {}: {}", terminal_safe(path),
                            error ? error.message() : std::strerror(errno)),
                "choose a writable folder");
  return {};
}

}  // namespace

void CompareOptions::add_to(CLI::App& app) {
  app.add_option("--shape", shape, "B,H,S,D or B,H,Hkv,L,S,E,Ev")->type_name("N,…")->group("Problem");
  app.add_option("--dtype", dtype, "f32, bf16, f16, f64")->type_name("TYPE")->group("Problem");
  app.add_option_function<std::vector<std::string>>(
         "--causal",
         [this](const std::vector<std::string>& values) {
           causal_given = true;
           causal = values.empty() ? "" : values.front();
         },
         "Causal mask: top-left (PyTorch's), lower-right or none")
      ->expected(0, 1)
      ->type_name("[=ALIGN]")
      ->group("Problem");
  app.add_option("--mask", mask, "bool or bias, and :sizes of B H L S or numbers (default 1,1,L,S)")
      ->type_name("KIND[:SIZES]")
      ->group("Problem");
  app.add_option("--window", window, "Sliding window around the diagonal; -1 is unbounded")
      ->type_name("LEFT[,RIGHT]")
      ->group("Problem");
  app.add_option("--scale", scale, "Scale of the scores (default 1/sqrt(E))")
      ->type_name("X")
      ->group("Problem");
  app.add_option("--softcap", softcap, "Scores become X*tanh(score/X)")->type_name("X")->group("Problem");
  app.add_option("--dropout", dropout, "Probability that a weight is dropped")
      ->type_name("P")
      ->group("Problem");
  app.add_option("--lengths", lengths, "Keys that count, one per batch entry or one for all")
      ->type_name("N,…")
      ->group("Problem");
  app.add_option("--layout", layout, "bhsd or bshd: the order in memory")
      ->type_name("ORDER")
      ->group("Problem");
  app.add_flag("--train", train, "A backward pass will follow: gradients and LSE are wanted")
      ->group("Problem");
  app.add_option("--seed", seed, "Seed of the contents")->type_name("N")->group("Problem");
  app.add_option("--backends,--variants", backends, "Only these, by name")->type_name("A,B,…")->group("Run");
  app.add_option("--device", device, "auto, cpu, cuda or cuda:N")->type_name("DEVICE")->group("Run");
  app.add_option("--threads", threads, "CPU threads (default: all of the process)")
      ->type_name("N")
      ->group("Run");
  app.add_option("--rounds", rounds, "Timed calls per variant")->type_name("N")->group("Run");
  app.add_option("--min-time", min_time, "Seconds of timing per variant (default 0.5)")
      ->type_name("SECONDS")
      ->group("Run");
  app.add_flag("--cold", cold, "Flush the caches before each timed call")->group("Run");
  app.add_option("--sweep", sweep,
                 "Compare over sizes: seq=512..16384x2 head_dim=64,128 (also batch, heads; +N for steps)")
      ->type_name("AXIS=VALUES")
      ->expected(1, 4)
      ->group("Run");
  app.add_option("--resume", resume, "The sweep's log: finished points are kept there and not run again")
      ->type_name("FILE")
      ->group("Run");
  app.add_flag("--tune", tune, "Time the backends over a grid and keep the order for auto")->group("Run");
  as_output(app.add_option("--tune-output", tune_output,
                           "With --tune: write the order there instead (- for stdout)")
                ->type_name("FILE")
                ->group("Run"));
  app.add_flag("--ask", ask, "Ask for your guess first")->group("Guess");
  app.add_option("--guess", guess, "Guess file: a TOML table per variant; exit 1 when it breaks")
      ->type_name("FILE")
      ->group("Guess");
  files.add_to(app, OutputFiles::kJson | OutputFiles::kMarkdown | OutputFiles::kHtml);
  app.add_option("--trace-dir", trace_dir, "Write the recording of each variant there as VARIANT.json")
      ->type_name("DIR");
}

Result<std::unique_ptr<compare::BenchDevice>> open_device(const CompareOptions& options) {
  int64_t threads = 0;
  if (!options.threads.empty()) {
    ATTNSCOPE_ASSIGN(threads, whole_number("--threads", options.threads, 1, 4096));
  }
  const std::string& name = options.device;
  const bool gpu =
      name == "cuda" || name.starts_with("cuda:") || (name == "auto" && compare::cuda_device_count() > 0);
  if (gpu) {
    int64_t index = 0;
    if (name.starts_with("cuda:")) {
      ATTNSCOPE_ASSIGN(index, whole_number("--device", std::string_view(name).substr(5), 0, 1023));
    }
    return compare::open_cuda_device(static_cast<int>(index));
  }
  if (name != "cpu" && name != "auto")
    return usage("known: auto, cpu, cuda, cuda:N", "--device: '{}' is no device", terminal_safe(name, 40));
  return compare::open_cpu_device(static_cast<int>(threads));
}

Result<compare::CompareRequest> to_request(const CompareOptions& options, DeviceType device) {
  compare::CompareRequest request;
  request.problem = compare::default_problem(device);
  ATTNSCOPE_TRY(parse_problem(options, request.problem));
  ATTNSCOPE_TRY(parse_measure(options, request.measure));
  if (!options.backends.empty())
    for (const std::string_view name : split(options.backends, ','))
      if (std::find(request.variants.begin(), request.variants.end(), name) == request.variants.end())
        request.variants.emplace_back(name);
  if (!options.guess.empty()) {
    if (options.ask) return usage("use one of them", "--guess and --ask both state the guess");
    ATTNSCOPE_ASSIGN(request.guess, compare::read_guess_file(options.guess));
  }
  request.keep_recordings = !options.trace_dir.empty() || !options.files.html.empty();
  return request;
}

Status check_outputs(const CompareOptions& options) {
  std::vector<OutputPlace> places = options.files.places();
  places.push_back({"--tune-output", options.tune_output});
  if (options.resume == "-")
    return usage("name a file", "--resume keeps the finished points in a file, not on stdout");
  places.push_back({"--resume", options.resume});
  ATTNSCOPE_TRY(check_outputs(places, {options.guess}));
  return check_directory(options.trace_dir);
}

}  // namespace attnscope::cli
