// The kernels for AMX with its tiles in software: what they compute can be tested on any AVX512_BF16
// processor.
#define ATTNSCOPE_ISA_NS amx_in_software
#define ATTNSCOPE_TILES_IN_SOFTWARE
#include "backends/cpu_fused/kernel/amx_kernels.h"
