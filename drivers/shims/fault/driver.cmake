# drivers/shims/fault/driver.cmake: what the shim is built of.
set(sources "drivers/shims/fault/*.cpp")
