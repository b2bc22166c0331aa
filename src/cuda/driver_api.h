#pragma once
// The few driver functions that the runtime has no counterpart for, found at run time: the library loads on a
// machine without a driver.

#include "attnscope/result.h"

#include <cuda.h>

#include <string_view>

namespace attnscope::cuda {

struct DriverApi {
  CUresult (*library_load_data)(CUlibrary*, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*,
                                void**, unsigned) = nullptr;
  CUresult (*library_get_kernel)(CUkernel*, CUlibrary, const char*) = nullptr;
  CUresult (*library_get_global)(CUdeviceptr*, size_t*, CUlibrary, const char*) = nullptr;
  CUresult (*kernel_get_attribute)(int*, CUfunction_attribute, CUkernel, CUdevice) = nullptr;
  CUresult (*kernel_set_attribute)(CUfunction_attribute, int, CUkernel, CUdevice) = nullptr;
  CUresult (*launch_kernel_ex)(const CUlaunchConfig*, CUfunction, void**, void**) = nullptr;
  CUresult (*tensor_map_encode_tiled)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                      const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                      CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                      CUtensorMapFloatOOBfill) = nullptr;
  CUresult (*get_error_string)(CUresult, const char**) = nullptr;
};

// The process's one table. kUnavailable: no driver, or one too old.
[[nodiscard]] Result<const DriverApi*> driver_api();

// Success, or an error that names the call.
[[nodiscard]] Status check(const DriverApi& api, CUresult status, std::string_view what,
                           std::source_location where = std::source_location::current());

}  // namespace attnscope::cuda
