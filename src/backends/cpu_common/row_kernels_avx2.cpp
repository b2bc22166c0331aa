#define ATTNSCOPE_ISA isa_avx2
#define ATTNSCOPE_ISA_NAME "avx2"
#define ATTNSCOPE_VECTOR_BYTES 32
#include "backends/cpu_common/row_kernels_impl.h"
