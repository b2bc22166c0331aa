#include "verify/runner.h"

#include "compare/device.h"

#include "attention/backend.h"
#include "attention/memory.h"
#include "base/text.h"
#include "tensor/fill.h"
#include "tensor/reference.h"
#include "tensor/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnscope::verify {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLargeElements = 4e7;
constexpr double kLargeFlops = 1e10;

bool stores_scores(std::string_view backend) {
  return backend == "naive" || backend == "inplace";
}

// The rows the oracle answers: all of them, or evenly spaced ones with the first and the last.
struct CheckedRows {
  std::vector<int64_t> rows;
  std::vector<ReferenceRow> expected;
  bool all = true;
  bool any_nan = false;
};

CheckedRows ask_oracle(const Request& r, double flops_limit) {
  const int64_t total = r.q.size(0) * r.heads() * r.q_len();
  const double row_flops =
      2.0 * static_cast<double>(r.kv_len()) * static_cast<double>(r.head_dim() + r.value_dim() + 4);
  CheckedRows checked;
  const auto count = static_cast<int64_t>(
      std::min(static_cast<double>(total), std::max(16.0, flops_limit / std::max(row_flops, 1.0))));
  checked.all = count == total;
  for (int64_t n = 0; n < count; ++n) checked.rows.push_back(count > 1 ? n * (total - 1) / (count - 1) : 0);
  checked.expected.resize(checked.rows.size());
  const Reference reference(r);
#pragma omp parallel for schedule(dynamic, 4)
  for (int64_t n = 0; n < count; ++n) {
    const int64_t row = checked.rows[static_cast<size_t>(n)], len = r.q_len();
    reference.row(row / len / r.heads(), row / len % r.heads(), row % len,
                  checked.expected[static_cast<size_t>(n)]);
  }
  for (const ReferenceRow& row : checked.expected)
    checked.any_nan = checked.any_nan || std::isnan(row.lse) ||
                      std::any_of(row.out.begin(), row.out.end(), [](double x) { return std::isnan(x); });
  return checked;
}

bool close(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= tolerance;
}

std::string differs(const char* what, int64_t b, int64_t h, int64_t i, int64_t e, double got, double want,
                    double tolerance) {
  return fmt::format("{}[{},{},{},{}] is {:.7g}, expected {:.7g} (tolerance {:.2g})", what, b, h, i, e, got,
                     want, tolerance);
}

bool has_keys(const Reference& oracle, const Request& r, int64_t b, int64_t h, int64_t i) {
  for (int64_t j = 0; j < r.kv_len(); ++j)
    if (oracle.sees(b, h, i, j)) return true;
  return false;
}

// Empty when right. empty_rows_free: NaN is fine in a row without keys.
std::string judge(const Case& c, const Request& r, const Outputs& o, const CheckedRows& checked,
                  const Tolerance& t, bool empty_rows_free) {
  const int64_t len = r.q_len(), width = r.value_dim();
  const bool lse = o.lse.data != nullptr;
  for (size_t n = 0; n < checked.rows.size(); ++n) {
    const int64_t row = checked.rows[n], b = row / len / r.heads(), h = row / len % r.heads(), i = row % len;
    const ReferenceRow& want = checked.expected[n];
    for (int64_t e = 0; e < width; ++e) {
      const double got = read_element(o.out, b, h, i, e), expected = want.out[static_cast<size_t>(e)];
      if (empty_rows_free && want.lse == -kInf && std::isnan(got)) continue;
      if (!close(got, expected, t.out)) return differs("out", b, h, i, e, got, expected, t.out);
    }
    if (lse && !close(read_element(o.lse, b, h, i), want.lse, t.lse))
      return differs("lse", b, h, i, 0, read_element(o.lse, b, h, i), want.lse, t.lse);
  }
  // What the report states in numbers, in logical order.
  const auto stated = [&](const char* what, const std::vector<double>& values, int64_t columns,
                          double tolerance, auto&& get) -> std::string {
    const int64_t total = r.q.size(0) * r.heads() * len * columns;
    if (values.empty()) return {};
    if (static_cast<int64_t>(values.size()) != total)
      return fmt::format("the case states {} values of {} for {}", values.size(), what, total);
    for (int64_t n = 0; n < total; ++n) {
      const int64_t row = n / columns, b = row / len / r.heads(), h = row / len % r.heads(), i = row % len;
      const double got = get(b, h, i, n % columns), want = values[static_cast<size_t>(n)];
      if (empty_rows_free && std::isnan(got)) continue;
      if (!close(got, want, tolerance + c.expect_tolerance))
        return differs(what, b, h, i, n % columns, got, want, tolerance);
    }
    return {};
  };
  std::string wrong =
      stated("out", c.expect_out, width, t.out,
             [&](int64_t b, int64_t h, int64_t i, int64_t e) { return read_element(o.out, b, h, i, e); });
  if (wrong.empty() && lse)
    wrong = stated("lse", c.expect_lse, 1, t.lse,
                   [&](int64_t b, int64_t h, int64_t i, int64_t) { return read_element(o.lse, b, h, i); });
  if (!wrong.empty() || checked.all || checked.any_nan) return wrong;
  // Rows the oracle was not asked for must at least have been written.
  const Reference oracle(r);
  const int64_t rows = r.q.size(0) * r.heads() * len;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t e = 0; e < width; ++e) {
      const int64_t b = row / len / r.heads(), h = row / len % r.heads(), i = row % len;
      if (!std::isnan(read_element(o.out, b, h, i, e))) continue;
      if (!empty_rows_free || has_keys(oracle, r, b, h, i))
        return differs("out", b, h, i, e, std::nan(""), 0, t.out);
      break;
    }
  return {};
}

// Host outputs that start as NaN.
struct HostOutputs {
  Tensor out, lse;
  static Result<HostOutputs> make(const Request& r) {
    HostOutputs o;
    ATTNSCOPE_ASSIGN(o.out, Tensor::empty(r.q.dtype, {r.q.size(0), r.heads(), r.q_len(), r.value_dim()}));
    ATTNSCOPE_ASSIGN(o.lse, Tensor::empty(DType::kF32, {r.q.size(0), r.heads(), r.q_len()}));
    o.poison();
    return o;
  }
  void poison() const {
    fill_constant(out, std::nan(""));
    fill_constant(lse, std::nan(""));
  }
};

// The request with its tensors on the device.
Status upload(compare::BenchDevice& device, Request& r) {
  for (TensorView* v : {&r.q, &r.k, &r.v, &r.mask, &r.lengths.kv_lengths, &r.lengths.cu_q, &r.lengths.cu_k,
                        &r.paging.block_table}) {
    if (v->data == nullptr) continue;
    ATTNSCOPE_ASSIGN(*v, device.upload(*v));
  }
  return {};
}

Status run_on(compare::BenchDevice& device, const std::string& backend, const Request& request,
              const HostOutputs& host, bool lse) {
  Outputs outputs;
  ATTNSCOPE_ASSIGN(outputs.out, device.upload(host.out));
  if (lse) {
    ATTNSCOPE_ASSIGN(outputs.lse, device.upload(host.lse));
  }
  ATTNSCOPE_TRY(sdpa(request, outputs, {{backend}}, device.run_options()));
  ATTNSCOPE_TRY(device.synchronize());
  if (outputs.out.data == host.out.data()) return {};
  ATTNSCOPE_TRY(device.download(outputs.out, host.out));
  return lse ? device.download(outputs.lse, host.lse) : Status{};
}

BackendResult run_backend(const Case& c, const Options& options, const Backend& backend,
                          compare::BenchDevice& device, Request request, const Request& host_request,
                          const CheckedRows& checked, const HostOutputs& host) {
  BackendResult result{std::string(backend.name()), Outcome::kOk, "", ""};
  request.wants.lse = true;
  std::vector<Refusal> refusals = backend.refusals(request);
  if (refusals.size() == 1 && refusals[0].code == "lse") {
    request.wants.lse = false;
    refusals = backend.refusals(request);
  }
  if (!refusals.empty()) {
    result.outcome = Outcome::kRefused;
    result.code = refusals[0].code;
    result.detail = refusals[0].message;
    return result;
  }
  host.poison();
  if (options.before) options.before(request);
  const Status status = run_on(device, result.backend, request, host, request.wants.lse);
  std::string wrong;
  if (!status) {
    wrong = status.error().message;
  } else {
    const Outputs seen{host.out, request.wants.lse ? host.lse.view() : TensorView{}};
    if (options.after) options.after(host_request, seen);
    wrong = judge(c, host_request, seen, checked, tolerance_for(host_request, stores_scores(result.backend)),
                  stores_scores(result.backend));
  }
  if (wrong.empty()) return result;
  auto known = c.deviates.find(result.backend);
  if (known == c.deviates.end() && backend.device() == DeviceType::kCuda)
    known = c.deviates.find("cuda:" + result.backend);
  result.outcome = known != c.deviates.end() ? Outcome::kDeviates : Outcome::kFailed;
  result.detail = known != c.deviates.end() ? known->second : wrong;
  return result;
}

std::vector<const Backend*> chosen(const Options& options) {
  std::vector<const Backend*> found;
  for (const Backend* backend : registered_backends()) {
    const bool asked = options.backends.empty() || std::find(options.backends.begin(), options.backends.end(),
                                                             backend->name()) != options.backends.end();
    if (backend->device() == options.device && backend->unavailable_reason().empty() && asked)
      found.push_back(backend);
  }
  return found;
}

Result<std::unique_ptr<compare::BenchDevice>> open(const Options& options) {
  if (options.device == DeviceType::kCuda) return compare::open_cuda_device(0);
  return compare::open_cpu_device(0);
}

void fail_all(CaseResult& result, const Options& options, const std::string& why) {
  for (const Backend* backend : chosen(options))
    result.backends.push_back({std::string(backend->name()), Outcome::kFailed, "", why});
}

// One pass over the backends; later passes (other strides) keep the first verdict that is not good.
void run_layout(const Case& c, const Options& options, bool dense, CaseResult& result) {
  const auto tensors = materialise(c, dense);
  if (!tensors) return fail_all(result, options, tensors.error().message);
  const Request& request = (*tensors)->request;
  const Status valid = validate(request);
  if (c.expect_error) {
    if (valid) return fail_all(result, options, "the request was accepted; it must be an error");
    for (const Backend* backend : chosen(options))
      result.backends.push_back(
          {std::string(backend->name()), Outcome::kRefused, "invalid-request", valid.error().message});
    return;
  }
  if (!valid) return fail_all(result, options, valid.error().message);
  const auto host = HostOutputs::make(request);
  if (!host) return fail_all(result, options, host.error().message);
  const CheckedRows checked = ask_oracle(request, options.oracle_flops);
  auto device = open(options);
  if (!device) return fail_all(result, options, device.error().message);
  Request on_device = request;
  if (const Status status = upload(**device, on_device); !status)
    return fail_all(result, options, status.error().message);
  for (const Backend* backend : chosen(options)) {
    BackendResult one = run_backend(c, options, *backend, **device, on_device, request, checked, *host);
    const auto before = std::find_if(result.backends.begin(), result.backends.end(),
                                     [&](const BackendResult& r) { return r.backend == one.backend; });
    if (before == result.backends.end()) {
      result.backends.push_back(std::move(one));
    } else if (before->outcome == Outcome::kOk) {
      *before = std::move(one);
    }
  }
}

CaseResult run_merge(const Case& c, CaseResult result) {
  BackendResult verdict{"merge_states", Outcome::kOk, "", ""};
  std::vector<Tensor> outs, lses;
  std::vector<Outputs> parts;
  outs.reserve(c.merge.size());
  lses.reserve(c.merge.size());
  parts.reserve(c.merge.size());
  for (const MergeState& state : c.merge) {
    const auto width = static_cast<int64_t>(state.out.size());
    outs.push_back(std::move(*Tensor::empty(DType::kF32, {1, 1, 1, width})));
    lses.push_back(std::move(*Tensor::empty(DType::kF32, {1, 1, 1})));
    for (int64_t e = 0; e < width; ++e)
      write_element(outs.back(), state.out[static_cast<size_t>(e)], 0, 0, 0, e);
    write_element(lses.back(), state.lse, 0, 0, 0);
  }
  for (size_t p = 0; p < outs.size(); ++p) parts.push_back({outs[p], lses[p]});
  const auto width = static_cast<int64_t>(c.expect_out.size());
  const Tensor out = std::move(*Tensor::empty(DType::kF32, {1, 1, 1, width}));
  const Tensor lse = std::move(*Tensor::empty(DType::kF32, {1, 1, 1}));
  if (const Status status = merge_states(parts, {out, lse}); !status) {
    verdict.outcome = Outcome::kFailed;
    verdict.detail = status.error().message;
  }
  for (int64_t e = 0; e < width && verdict.outcome == Outcome::kOk; ++e)
    if (const double got = read_element(out, 0, 0, 0, e);
        !close(got, c.expect_out[static_cast<size_t>(e)], 1e-6)) {
      verdict.outcome = Outcome::kFailed;
      verdict.detail = differs("out", 0, 0, 0, e, got, c.expect_out[static_cast<size_t>(e)], 1e-6);
    }
  if (const double got = read_element(lse, 0, 0, 0);
      verdict.outcome == Outcome::kOk && !c.expect_lse.empty() && !close(got, c.expect_lse[0], 1e-5)) {
    verdict.outcome = Outcome::kFailed;
    verdict.detail = differs("lse", 0, 0, 0, 0, got, c.expect_lse[0], 1e-5);
  }
  result.backends.push_back(std::move(verdict));
  return result;
}

double case_flops(const Case& c) {
  double n = 2;
  for (size_t d = 0; d < 3; ++d) n *= static_cast<double>(c.q.sizes[d]);
  return n * static_cast<double>(c.k.sizes[2]) * static_cast<double>(c.q.sizes[3] + c.v.sizes[3]);
}

}  // namespace

bool CaseResult::failed() const {
  return std::any_of(backends.begin(), backends.end(),
                     [](const BackendResult& r) { return r.outcome == Outcome::kFailed; });
}

Status check_options(const Options& options) {
  for (const std::string& name : options.backends)
    if (find_backend(name, options.device) == nullptr) {
      std::vector<std::string> known;
      for (const Backend* backend : registered_backends())
        if (backend->device() == options.device) known.emplace_back(backend->name());
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("no backend '{}' for this device", terminal_safe(name)),
                  fmt::format("known: {}", join(known, ", ")));
    }
  ATTNSCOPE_TRY(open(options));
  return {};
}

CaseResult run_case(const Case& c, const Options& options) {
  CaseResult result{c.id, c.source, c.fault, "", c.needs_backward, {}};
  if (!c.merge.empty()) return run_merge(c, std::move(result));
  if (c.q.sizes.empty()) {
    result.skipped = "about machinery: " + c.machinery;
    return result;
  }
  const double elements = touched_elements(c), flops = case_flops(c);
  if (!options.large && (elements > kLargeElements || flops > kLargeFlops)) {
    const std::string work = flops >= 1e9 ? fmt::format(", {:.0f} GFLOP", flops / 1e9) : "";
    result.skipped = fmt::format("large ({:.0f} million elements{}): ask with --large", elements / 1e6, work);
    return result;
  }
  // The tensors once on the host, and the output; backends refuse by themselves what their intermediates need
  // beyond that.
  const double bytes = elements * static_cast<double>(dtype_size(c.q.dtype));
  const auto available = static_cast<double>(available_host_bytes());
  if (available > 0 && bytes > 0.9 * available) {
    result.skipped =
        fmt::format("needs {} of memory, {} is available", format_bytes(bytes), format_bytes(available));
    return result;
  }
  const bool strided =
      !c.q.strides.empty() || !c.k.strides.empty() || !c.v.strides.empty() || !c.mask.strides.empty();
  // The dense twin first: a plan kept for it must not serve the strided request.
  if (strided) run_layout(c, options, true, result);
  run_layout(c, options, false, result);
  return result;
}

}  // namespace attnscope::verify
