#pragma once
// The seam to CUPTI: the functions of the activity API that the profiler uses, and nothing else. The real one
// opens libcupti at run time; tests put a fake here that replays recorded buffers. No subscriber functions:
// a subscriber would silence another profiler in the process.

#include "attnscope/result.h"

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace attnscope::profiler {

class CuptiApi {
 public:
  virtual ~CuptiApi() = default;
  virtual CUptiResult get_version(uint32_t* version) = 0;
  virtual CUptiResult set_system_thread_ids() = 0;
  virtual CUptiResult register_timestamp_callback(CUpti_TimestampCallbackFunc callback) = 0;
  virtual CUptiResult register_buffer_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                                CUpti_BuffersCallbackCompleteFunc complete) = 0;
  virtual CUptiResult enable(CUpti_ActivityKind kind) = 0;
  virtual CUptiResult disable(CUpti_ActivityKind kind) = 0;
  virtual CUptiResult flush(bool forced) = 0;
  virtual CUptiResult next_record(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) = 0;
  virtual CUptiResult dropped_records(CUcontext context, uint32_t stream, size_t* dropped) = 0;
  virtual CUptiResult callback_name(CUpti_CallbackDomain domain, uint32_t cbid, const char** name) = 0;
  virtual const char* result_text(CUptiResult result) = 0;
  virtual std::string path() const { return {}; }
};

// libcupti.so of this process when one is loaded, else ATTNSCOPE_CUPTI, the loader's path, CUDA toolkits and
// Python wheels. kUnavailable names what was tried. The object lives as long as the process.
[[nodiscard]] Result<CuptiApi*> load_cupti();

// A CUPTI status as Status: missing permission and virtual GPUs come with their remedy.
[[nodiscard]] Status check_cupti(CuptiApi& api, CUptiResult result, const char* what);

}  // namespace attnscope::profiler
