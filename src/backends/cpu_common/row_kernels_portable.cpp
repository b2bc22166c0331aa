#define ATTNSCOPE_ISA isa_portable
#define ATTNSCOPE_ISA_NAME "portable"
#define ATTNSCOPE_VECTOR_BYTES 16
#include "backends/cpu_common/row_kernels_impl.h"
