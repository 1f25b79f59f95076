"""A driver that copies only whole blocks, and never between two devices: the core stages the rest."""

import os
import subprocess
from pathlib import Path

import pytest

import backplane_sdk

pytestmark = pytest.mark.once


@pytest.fixture(scope="module", params=[-1, 0, 1])
def block_driver(request, tmp_path_factory):
    """Of two devices of one alignment, or where the one or the other takes smaller blocks."""
    path = tmp_path_factory.mktemp("block") / "libblock.so"
    source = Path(__file__).parent / "drivers" / "block_copies.c"
    compiler = os.environ.get("CC", "cc")
    include = f"-I{backplane_sdk.include_dir()}"
    words = [compiler, "-std=c11", "-shared", "-fPIC", include, f"-DODD_DEVICE={request.param}", str(source)]
    subprocess.run([*words, "-o", str(path)], check=True)
    return path


def test_odd_copies_and_copies_between_devices_are_exact(run_in_process, name, block_driver):
    code = f"""
    import torch
    first, second = torch.device("{name}", 0), torch.device("{name}", 1)
    cpu = torch.arange(1000, dtype=torch.uint8)
    x = cpu.to(first)
    for begin, end in ((0, 1000), (1, 2), (63, 65), (64, 128), (3, 999), (200, 200)):
        assert torch.equal(x[begin:end].cpu(), cpu[begin:end])
        assert torch.equal(x[begin:end].to(second).cpu(), cpu[begin:end])
        assert torch.equal(x.to(second)[begin:end].to(first).cpu(), cpu[begin:end])
        for source, target in ((first, second), (second, first)):
            z = torch.zeros(1024, dtype=torch.uint8, device=target)
            z[16:16 + end - begin] = x.to(source)[begin:end]
            assert torch.equal(z[16:16 + end - begin].cpu(), cpu[begin:end])
            assert z.count_nonzero().item() == cpu[begin:end].count_nonzero().item()
        y = torch.zeros(1000, dtype=torch.uint8, device=first)
        y[begin:end] = cpu[begin:end]
        y[end:].copy_(x[end:])
        expected = torch.zeros(1000, dtype=torch.uint8)
        expected[begin:] = cpu[begin:]
        assert torch.equal(y.cpu(), expected)
        assert torch.equal(y[begin:end].to(torch.int32).to(second)[::3].cpu(), cpu[begin:end].int()[::3])
    assert x[77].item() == 77
    assert x[::7].clone().fill_(9).sum().item() == 9 * 143
    with torch.no_grad():
        assert torch.equal(torch.sin(x.float()).cpu(), torch.sin(cpu.float()))
    print("exact")
    """
    env = {f"{name.upper()}_DRIVER": str(block_driver)}
    assert run_in_process(code, options="devices=2", env=env).stdout.split() == ["exact"]
