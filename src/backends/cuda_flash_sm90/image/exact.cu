// An instance compiled at run time (exact.h): entry.cu, with the products of sizes that no embedded image has.
#include "backends/cuda_flash_sm90/image/more_wgmma.cuh"
#include "backends/cuda_flash_sm90/image/entry.cu"
