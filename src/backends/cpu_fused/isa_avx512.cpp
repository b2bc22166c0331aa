// Kernels for avx512; the flags come from the build.
#define ATTNSCOPE_ISA_NS avx512
#include "backends/cpu_fused/kernel/widen_kernels.h"
