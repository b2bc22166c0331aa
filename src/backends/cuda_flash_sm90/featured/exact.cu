// An instance compiled at run time (exact.h): entry.cu, with products of sizes that no embedded image has.
#include "backends/cuda_flash_sm90/image/more_wgmma.cuh"
// … before the kernel uses them.
#include "backends/cuda_flash_sm90/featured/entry.cu"
