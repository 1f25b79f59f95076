"""Device memory in tests: nothing cached, a limit of the allocator, the place of a tensor."""

import contextlib
import gc


def emptied(device_module):
    """The device module; what earlier tests left is freed."""
    gc.collect()
    device_module.synchronize()
    device_module.empty_cache()
    return device_module


@contextlib.contextmanager
def limited(device_module, nbytes):
    """The allocator reserves no more than so many bytes."""
    device_module.set_per_process_memory_fraction(nbytes / device_module.mem_get_info()[1])
    try:
        yield
    finally:
        device_module.set_per_process_memory_fraction(1.0)


def is_inside(tensor, segments):
    return any(s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"] for s in segments)
