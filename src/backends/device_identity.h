#pragma once
// Parts of device_identity() (attention/order_table.h).

#include "attention/order_table.h"

namespace attnscope {

// Defined in gpu_identity.cpp or, in a build without CUDA, no_gpu_identity.cpp.
DeviceIdentity gpu_identity(int index);

}  // namespace attnscope
