// Kernels for portable; the flags come from the build.
#define ATTNSCOPE_ISA_NS portable
#include "backends/cpu_fused/kernel/widen_kernels.h"
