# drivers/opencl/driver.cmake: what the OpenCL driver is built of. OpenCL itself is opened at run time.
set(sources "drivers/opencl/*.cpp" "drivers/spirv/*.cpp")
set(standard 20)  # of drivers/spirv
