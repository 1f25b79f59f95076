"""The suite ``cuda-dtypes`` of the conformance kit: how much of what CUDA computes, by PyTorch's database, is right."""

import json
import os
import subprocess
import sys

import pytest
import torch

from backplane_tools.conformance.case import Case
from backplane_tools.conformance.suites import load

FLOOR = 0.997
"""Of the pairs that were compared. It only rises (docs/contract.md)."""

PAIRS = """
nn.functional.avg_pool3d:bfloat16 nn.functional.rrelu:float16 histc:uint8 fft.irfft:complex32 sigmoid:complex32
trace:bool nansum:complex64 torch.ops.aten._flash_attention_forward:float16
""".split()


@pytest.fixture(scope="module")
def suite():
    return load("cuda-dtypes")


@pytest.mark.once
@pytest.mark.xdist_group("conformance_suites")
@pytest.mark.parametrize("pair", PAIRS)
def test_K14_a_sample_of_what_cuda_has_is_right(suite, device, pair):
    name, _, dtype = pair.partition(":")
    outcome = suite.run(Case("cuda-dtypes", name, dtype), str(device), 0)
    assert outcome.status == "pass", outcome.message
    assert outcome.checks["forward"] == 1
    has_gradients = suite.entries[name].supports_autograd and getattr(torch, dtype).is_floating_point
    assert outcome.checks.get("backward", 0) == 1 or not has_gradients


@pytest.mark.once
@pytest.mark.filterwarnings("ignore:.*overridden|.*Overriding:UserWarning")
def test_K14_a_wrong_kernel_and_one_that_is_missing_are_seen(suite, device):
    pair = Case("cuda-dtypes", "sin", "complex32")
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("sin", lambda x: torch.complex(x.real.cos(), x.imag), "PrivateUse1")
        assert "values differ" in suite.run(pair, str(device), 0).message
    from torch_backplane import fallback

    with fallback.widening(False):
        assert "not implemented for 'ComplexHalf'" in suite.run(pair, str(device), 0).message


@pytest.mark.long
@pytest.mark.once
@pytest.mark.timeout(3600)  # some minutes on two idle cores
def test_K14_the_share_of_what_cuda_has(device, tmp_path):
    found = tmp_path / "pairs.json"
    command = [sys.executable, "-m", "backplane_tools", "conformance", "--suite", "cuda-dtypes", "-j", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--device", device.type, "--json", found], env=environment, check=False, timeout=3000)
    rows = [row for row in json.loads(found.read_text())["cases"] if row["status"] != "skip"]
    wrong = [row["id"] for row in rows if row["status"] not in ("pass", "xpass")]
    assert len(rows) > 5000
    assert 1 - len(wrong) / len(rows) >= FLOOR, wrong
