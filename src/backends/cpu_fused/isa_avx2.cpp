// Kernels for avx2; the flags come from the build.
#define ATTNSCOPE_ISA_NS avx2
#include "backends/cpu_fused/kernel/widen_kernels.h"
