# drivers/shims/trace/driver.cmake: what the shim is built of.
set(sources "drivers/shims/trace/*.cpp")
