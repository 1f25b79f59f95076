"""Names of compiled kernels in torch.profiler."""

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def test_E56_a_kernel_of_the_library_has_its_operators_name(device, device_module):
    """One kernel computes many operators: its own name alone would not show which."""
    x = torch.randn(64, 64, device=device)
    x.sum()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        x.sum(0)
        x.amax(1)
        torch._foreach_add_([x, x.clone()], 1.0)
        device_module.synchronize()
    names = {event.name for event in profiled.events() if event.device_type != DeviceType.CPU}
    assert {"aten::sum reduction", "aten::amax reduction", "aten::_foreach_add_ table"} <= names
