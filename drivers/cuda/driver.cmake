# drivers/cuda/driver.cmake: what the driver of NVIDIA GPUs is built of. Nothing of CUDA is needed to build it.
set(sources "drivers/cuda/*.cpp")
