# drivers/sim/driver.cmake: what the simulated device is built of.
# The engine of streams is compiled in: in this unit that costs less than by itself.
set(sources "drivers/sim/*.cpp" "drivers/engine/*.cpp")
