"""ExecuTorch: programs of a model that is on the device, portable and of XNNPACK, run by its runtime."""

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import nn
from torch.export.passes import move_to_device_pass


def made():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).eval()


@pytest.mark.sample
@pytest.mark.parametrize("kind", ["portable", "XNNPACK"])
def test_programs(device, kind):
    """XNNPACK takes weights of the CPU: exported programs are moved there by torch."""
    inputs = torch.randn(3, 8, generator=torch.Generator().manual_seed(2))
    exported, parts = torch.export.export(made().to(device), (inputs.to(device),)), []
    assert {weight.device for weight in exported.state_dict.values()} == {device}
    if kind == "XNNPACK":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        exported, parts = move_to_device_pass(exported, "cpu"), [XnnpackPartitioner()]
    lowered = to_edge_transform_and_lower(exported, partitioner=parts)
    names = str(lowered.exported_program().graph)
    assert ("executorch_call_delegate" in names) == (kind == "XNNPACK")
    program = Runtime.get().load_program(lowered.to_executorch().buffer)
    (found,) = program.load_method("forward").execute([inputs])
    torch.testing.assert_close(found, made()(inputs).detach(), atol=1e-5, rtol=1e-4)
