#include "profiler/cupti_api.h"

#include "cuda/library.h"

#include <fmt/format.h>

#include <mutex>

namespace attnscope::profiler {
namespace {

// Typed by the header's own declarations: a function whose signature changed does not compile.
struct Functions {
  decltype(&::cuptiGetVersion) get_version = nullptr;
  decltype(&::cuptiSetThreadIdType) set_thread_id_type = nullptr;
  decltype(&::cuptiActivityRegisterTimestampCallback) register_timestamp = nullptr;
  decltype(&::cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&::cuptiActivityEnable) enable = nullptr;
  decltype(&::cuptiActivityDisable) disable = nullptr;
  decltype(&::cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&::cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&::cuptiActivityGetNumDroppedRecords) dropped = nullptr;
  decltype(&::cuptiGetCallbackName) callback_name = nullptr;
  decltype(&::cuptiGetResultString) result_string = nullptr;
};

class DynamicCupti final : public CuptiApi {
 public:
  [[nodiscard]] Status open() {
    static constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    ATTNSCOPE_ASSIGN(library_, cuda::DynamicLibrary::open(kNames, "ATTNSCOPE_CUPTI"));
    std::string missing;
    auto bind = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.find(symbol));
      if (!function) missing += fmt::format(" {}", symbol);
    };
    bind(f_.get_version, "cuptiGetVersion");
    bind(f_.set_thread_id_type, "cuptiSetThreadIdType");
    bind(f_.register_timestamp, "cuptiActivityRegisterTimestampCallback");
    bind(f_.register_callbacks, "cuptiActivityRegisterCallbacks");
    bind(f_.enable, "cuptiActivityEnable");
    bind(f_.disable, "cuptiActivityDisable");
    bind(f_.flush_all, "cuptiActivityFlushAll");
    bind(f_.next_record, "cuptiActivityGetNextRecord");
    bind(f_.dropped, "cuptiActivityGetNumDroppedRecords");
    bind(f_.callback_name, "cuptiGetCallbackName");
    bind(f_.result_string, "cuptiGetResultString");
    if (!missing.empty())
      return fail(ErrorCode::kUnavailable, fmt::format("{} is too old: it lacks{}", library_.path(), missing),
                  "use the CUPTI of CUDA 12 or 13 (ATTNSCOPE_CUPTI=path)");
    uint32_t version = 0;
    (void)f_.get_version(&version);
    // Kernel records of CUDA 11.8 (CUPTI 18) and later start with the fields that the decoder reads.
    if (version < 18)
      return fail(ErrorCode::kUnavailable,
                  fmt::format("{} is CUPTI API version {}; 18 or newer is needed", library_.path(), version),
                  "use the CUPTI of CUDA 12 or 13 (ATTNSCOPE_CUPTI=path)");
    return {};
  }

  CUptiResult get_version(uint32_t* version) override { return f_.get_version(version); }
  CUptiResult set_system_thread_ids() override {
    return f_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  }
  CUptiResult register_timestamp_callback(CUpti_TimestampCallbackFunc callback) override {
    return f_.register_timestamp(callback);
  }
  CUptiResult register_buffer_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                        CUpti_BuffersCallbackCompleteFunc complete) override {
    return f_.register_callbacks(request, complete);
  }
  CUptiResult enable(CUpti_ActivityKind kind) override { return f_.enable(kind); }
  CUptiResult disable(CUpti_ActivityKind kind) override { return f_.disable(kind); }
  CUptiResult flush(bool forced) override {
    return f_.flush_all(forced ? static_cast<uint32_t>(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) : 0u);
  }
  CUptiResult next_record(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) override {
    return f_.next_record(buffer, valid_bytes, record);
  }
  CUptiResult dropped_records(CUcontext context, uint32_t stream, size_t* dropped) override {
    return f_.dropped(context, stream, dropped);
  }
  CUptiResult callback_name(CUpti_CallbackDomain domain, uint32_t cbid, const char** name) override {
    return f_.callback_name(domain, cbid, name);
  }
  const char* result_text(CUptiResult result) override {
    const char* text = nullptr;
    return f_.result_string(result, &text) == CUPTI_SUCCESS && text ? text : "unknown CUPTI status";
  }
  std::string path() const override { return library_.path(); }

 private:
  cuda::DynamicLibrary library_;
  Functions f_;
};

}  // namespace

Result<CuptiApi*> load_cupti() {
  static std::mutex mutex;
  static DynamicCupti* loaded = nullptr;
  std::lock_guard lock(mutex);
  if (!loaded) {
    auto candidate = std::make_unique<DynamicCupti>();
    ATTNSCOPE_TRY(candidate->open());
    loaded = candidate.release();
  }
  return static_cast<CuptiApi*>(loaded);
}

Status check_cupti(CuptiApi& api, CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return {};
  std::string remedy;
  ErrorCode code = ErrorCode::kUnavailable;
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      remedy =
          "profiling is reserved for administrators here: run as root, in a container with CAP_SYS_ADMIN, or "
          "load "
          "the driver with NVreg_RestrictProfilingToAdminUsers=0";
      break;
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      remedy = "another profiler holds CUPTI in this process (Nsight, DCGM, a debugger); end it first";
      break;
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      remedy = "this kind of virtual GPU cannot be profiled; timing by events still works";
      break;
    case CUPTI_ERROR_NOT_COMPATIBLE:
      remedy =
          "the driver is older than this CUPTI: set ATTNSCOPE_CUPTI to the CUPTI of the driver's CUDA "
          "version";
      break;
    default: code = ErrorCode::kInternal; break;
  }
  return fail(
      code, fmt::format("{}: {} (CUPTI status {})", what, api.result_text(result), static_cast<int>(result)),
      remedy);
}

}  // namespace attnscope::profiler
