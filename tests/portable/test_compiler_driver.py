"""Portable kernels on examples/compiler_driver, which has nine functions and a compiler: what a vendor has first."""

import os
import shlex
import subprocess

import pytest

import backplane_sdk

pytestmark = pytest.mark.long


@pytest.fixture
def compiler_driver(tmp_path):
    example = backplane_sdk.source_dir() / "examples/compiler_driver"
    path = tmp_path / "libcompiler_driver.so"
    command = [*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-O2", "-shared", "-fPIC"]
    sources = [str(example / name) for name in ("compiler_driver.c", "compiler.c")]
    subprocess.run([*command, f"-I{backplane_sdk.include_dir()}", *sources, "-o", str(path), "-ldl"], check=True)
    return path


def test_pointwise_operators(run_in_process, device, compiler_driver, tmp_path):
    """Compiled by the first process, and taken from the disk by the second."""
    prefix = device.type.upper()
    env = {f"{prefix}_DRIVER": str(compiler_driver), f"{prefix}_CACHE_DIR": str(tmp_path / "cache")}
    code = f"""
        import torch
        import torch.nn.functional as F
        from torch_backplane import compiler, driver, fallback

        x, y = torch.linspace(-3, 3, 1001), torch.linspace(4, -4, 1001)
        calls = [
            lambda x, y: x + 2 * y,
            lambda x, y: torch.where(x > y, F.gelu(x), torch.exp(y)),
            lambda x, y: x[::3].double().tanh(),
            lambda x, y: x.bfloat16() * y.bfloat16(),
            lambda x, y: (100 * x).to(torch.int64) ^ 7,
            lambda x, y: torch.outer(x, y).t().clamp(min=0),
        ]
        for call in calls:
            ours = x.to("{device.type}:1"), y.to("{device.type}:1")
            with fallback.budget(calls=0):
                found = call(*ours)
            torch.testing.assert_close(found.cpu(), call(x, y))
        counts = compiler.counts()
        print(*driver.info().shims, counts.compiled, counts.from_cache, counts.failed)
    """
    first, second = (run_in_process(code, options="devices=2", env=env).stdout.split() for _ in range(2))
    compiled = int(first[1])
    assert compiled > 8
    assert first == ["emulate", str(compiled), "0", "0"]
    assert second == ["emulate", "0", str(compiled), "0"]


def test_attention_with_little_local_memory(run_in_process, device, compiler_driver, tmp_path):
    """Heads so large that fewer keys fit than a row is folded by: such a call is composed."""
    prefix = device.type.upper()
    env = {f"{prefix}_DRIVER": str(compiler_driver), f"{prefix}_CACHE_DIR": str(tmp_path / "cache")}
    code = f"""
        import torch

        for size in (64, 256, 512):
            query, rows = torch.randn(1, 8, 1, size).half(), torch.randn(1, 1, 40, size).half()
            ours = [one.to("{device.type}") for one in (query, rows)]
            attend = torch.nn.functional.scaled_dot_product_attention
            found = attend(ours[0], ours[1], ours[1], enable_gqa=True)
            expected = attend(query.float(), rows.float(), rows.float(), enable_gqa=True)
            torch.testing.assert_close(found.cpu().float(), expected, rtol=4e-3, atol=4e-3)
    """
    run_in_process(code, env=env)
