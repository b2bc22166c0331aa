#include "cuda/cublaslt.h"

#include "cuda/device.h"
#include "cuda/library.h"
#include "cuda/status.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <map>
#include <mutex>

namespace attnscope::cuda {
namespace {

struct Library {
  DynamicLibrary library;
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtGetVersion) get_version = nullptr;
  decltype(&::cublasLtGetStatusString) status_string = nullptr;
  decltype(&::cublasLtMatmul) matmul = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&::cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&::cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
};

Result<const Library*> load() {
  static std::mutex mutex;
  static const Library* loaded = nullptr;
  std::lock_guard lock(mutex);
  if (loaded) return loaded;
  auto candidate = std::make_unique<Library>();
  static constexpr const char* kNames[] = {"libcublasLt.so.13"};
  ATTNSCOPE_ASSIGN(candidate->library, DynamicLibrary::open(kNames, "ATTNSCOPE_CUBLASLT"));
  std::string missing;
  auto bind = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(candidate->library.find(symbol));
    if (!function) missing += fmt::format(" {}", symbol);
  };
  bind(candidate->create, "cublasLtCreate");
  bind(candidate->get_version, "cublasLtGetVersion");
  bind(candidate->status_string, "cublasLtGetStatusString");
  bind(candidate->matmul, "cublasLtMatmul");
  bind(candidate->heuristic, "cublasLtMatmulAlgoGetHeuristic");
  bind(candidate->desc_create, "cublasLtMatmulDescCreate");
  bind(candidate->desc_set, "cublasLtMatmulDescSetAttribute");
  bind(candidate->desc_destroy, "cublasLtMatmulDescDestroy");
  bind(candidate->layout_create, "cublasLtMatrixLayoutCreate");
  bind(candidate->layout_set, "cublasLtMatrixLayoutSetAttribute");
  bind(candidate->layout_destroy, "cublasLtMatrixLayoutDestroy");
  bind(candidate->preference_create, "cublasLtMatmulPreferenceCreate");
  bind(candidate->preference_set, "cublasLtMatmulPreferenceSetAttribute");
  bind(candidate->preference_destroy, "cublasLtMatmulPreferenceDestroy");
  if (!missing.empty())
    return fail(ErrorCode::kUnavailable, fmt::format("{} lacks{}", candidate->library.path(), missing),
                "install cuBLAS of CUDA 13");
  loaded = candidate.release();
  return loaded;
}

Status check_blas(const Library& lib, cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const ErrorCode code = status == CUBLAS_STATUS_ALLOC_FAILED    ? ErrorCode::kOutOfMemory
                         : status == CUBLAS_STATUS_NOT_SUPPORTED ? ErrorCode::kUnavailable
                                                                 : ErrorCode::kInternal;
  return fail(code, fmt::format("cuBLASLt: {}: {}", what, lib.status_string(status)));
}

// One handle per device: cublasLtMatmul may be called with it from many threads.
Result<cublasLtHandle_t> handle_of(const Library& lib, int device) {
  static std::mutex mutex;
  static auto* handles = new std::map<int, cublasLtHandle_t>();
  std::lock_guard lock(mutex);
  if (auto found = handles->find(device); found != handles->end()) return found->second;
  DeviceGuard guard(device);
  ATTNSCOPE_TRY(check(guard.status(), "cudaSetDevice"));
  cublasLtHandle_t handle = nullptr;
  ATTNSCOPE_TRY(check_blas(lib, lib.create(&handle), "creating a handle"));
  handles->emplace(device, handle);
  return handle;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    case DType::kF64: return CUDA_R_64F;
    default: return CUDA_R_32F;
  }
}

}  // namespace

struct Gemm::Impl {
  const Library* lib = nullptr;
  cublasLtHandle_t handle = nullptr;
  GemmShape shape;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algo{};
  size_t workspace = 0;

  ~Impl() {
    if (a) (void)lib->layout_destroy(a);
    if (b) (void)lib->layout_destroy(b);
    if (c) (void)lib->layout_destroy(c);
    if (desc) (void)lib->desc_destroy(desc);
  }
  Status layout(cublasLtMatrixLayout_t& out, int64_t rows, int64_t columns, int64_t ld,
                int64_t stride) const {
    ATTNSCOPE_TRY(check_blas(*lib,
                             lib->layout_create(&out, data_type(shape.dtype), static_cast<uint64_t>(rows),
                                                static_cast<uint64_t>(columns), ld),
                             "matrix layout"));
    const auto count = static_cast<int32_t>(shape.batch);
    ATTNSCOPE_TRY(check_blas(*lib,
                             lib->layout_set(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
                             "batch count"));
    return check_blas(
        *lib, lib->layout_set(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
        "batch stride");
  }
  // cuBLAS is column-major: C row-major is Cᵀ column-major, so Cᵀ = Bᵀ·Aᵀ with the operands swapped.
  Status describe() {
    const cublasComputeType_t compute = shape.plain_f32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    ATTNSCOPE_TRY(check_blas(*lib, lib->desc_create(&desc, compute, CUDA_R_32F), "matmul descriptor"));
    const cublasOperation_t first = shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    ATTNSCOPE_TRY(check_blas(*lib, lib->desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)),
                             "transpose"));
    if (shape.b_transposed)
      ATTNSCOPE_TRY(layout(b, shape.k, shape.n, shape.b_ld, shape.b_batch));
    else
      ATTNSCOPE_TRY(layout(b, shape.n, shape.k, shape.b_ld, shape.b_batch));
    ATTNSCOPE_TRY(layout(a, shape.k, shape.m, shape.a_ld, shape.a_batch));
    return layout(c, shape.n, shape.m, shape.c_ld, shape.c_batch);
  }
  Status choose(size_t alignment, size_t limit) {
    cublasLtMatmulPreference_t preference = nullptr;
    ATTNSCOPE_TRY(check_blas(*lib, lib->preference_create(&preference), "preference"));
    const auto bytes = static_cast<uint32_t>(alignment > 256 ? 256 : alignment);
    (void)lib->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof(limit));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      (void)lib->preference_set(preference, attribute, &bytes, sizeof(bytes));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = lib->heuristic(handle, desc, b, a, c, c, preference, 1, &result, &found);
    (void)lib->preference_destroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
      return fail(ErrorCode::kUnavailable,
                  fmt::format("cuBLASLt has no algorithm for {} [{}×{}×{}] × {}: {}", dtype_name(shape.dtype),
                              shape.m, shape.n, shape.k, shape.batch, lib->status_string(status)));
    algo = result.algo;
    workspace = result.workspaceSize;
    return {};
  }
};

Result<Gemm> Gemm::plan(const GemmShape& shape, int device, size_t alignment, size_t workspace_limit) {
  ATTNSCOPE_ASSIGN(const Library* lib, load());
  DeviceGuard guard(device);
  ATTNSCOPE_TRY(check(guard.status(), "cudaSetDevice"));
  auto impl = std::make_shared<Impl>();
  impl->lib = lib;
  ATTNSCOPE_ASSIGN(impl->handle, handle_of(*lib, device));
  impl->shape = shape;
  ATTNSCOPE_TRY(impl->describe());
  ATTNSCOPE_TRY(impl->choose(alignment, workspace_limit));
  Gemm gemm;
  gemm.impl_ = std::move(impl);
  return gemm;
}

Status Gemm::run(const void* a, const void* b, void* c, float alpha, void* workspace,
                 cudaStream_t stream) const {
  const float beta = 0.0f;
  const Impl& i = *impl_;
  return check_blas(*i.lib,
                    i.lib->matmul(i.handle, i.desc, &alpha, b, i.b, a, i.a, &beta, c, i.c, c, i.c, &i.algo,
                                  workspace, i.workspace, stream),
                    "matrix product");
}

size_t Gemm::workspace_bytes() const {
  return impl_ ? impl_->workspace : 0;
}
const GemmShape& Gemm::shape() const {
  return impl_->shape;
}

Result<std::string> cublaslt_version() {
  ATTNSCOPE_ASSIGN(const Library* lib, load());
  const size_t v = lib->get_version();
  return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

}  // namespace attnscope::cuda
