// drivers/cuda/properties.h: what CUDA reports of a GPU and of an address.
#pragma once

#include <backplane/driver.h>

#include "gpus.h"

namespace backplane::driver::cuda {

/// Creates no context.
void properties_of(const Library& cuda, const Device& device, bp_device_properties* out);

/// Memory that others in this process have from CUDA, as torch.cuda's. Leaves an address that CUDA does not know alone.
void ask_cuda_about(const Library& cuda, const Gpus& gpus, uint64_t address, bp_pointer_info* out);

}  // namespace backplane::driver::cuda
