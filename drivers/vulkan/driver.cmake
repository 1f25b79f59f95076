# drivers/vulkan/driver.cmake: what the Vulkan driver is built of. Vulkan itself is opened at run time.
set(sources "drivers/vulkan/*.cpp" "drivers/spirv/*.cpp")
set(standard 20)  # of drivers/spirv
