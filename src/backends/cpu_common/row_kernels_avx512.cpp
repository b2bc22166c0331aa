#define ATTNSCOPE_ISA isa_avx512
#define ATTNSCOPE_ISA_NAME "avx512"
#define ATTNSCOPE_VECTOR_BYTES 64
#include "backends/cpu_common/row_kernels_impl.h"
