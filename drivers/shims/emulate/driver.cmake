# drivers/shims/emulate/driver.cmake: what the shim is built of.
# The engine of streams is compiled in: in this unit that costs less than by itself.
set(sources "drivers/shims/emulate/*.cpp" "drivers/engine/*.cpp")
