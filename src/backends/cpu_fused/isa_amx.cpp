// Kernels for processors with AMX; the flags come from the build.
#define ATTNSCOPE_ISA_NS amx_bf16
#include "backends/cpu_fused/kernel/amx_kernels.h"
