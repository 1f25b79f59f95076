"""How much of PyTorch's operators compiled kernels keep on the device, with memory that the host does not reach."""

import json
import os
import subprocess
import sys

import pytest

from backplane_tools.conformance.suites.device_share import DTYPES

FLOORS = {"float32": 0.87, "bfloat16": 0.95, "int64": 0.87, "complex64": 0.79}
"""Mean share of an operator's samples; forward and backward, of integers forward. They only rise (docs/contract.md)."""

FLOAT64 = {"float32": 0.03, "bfloat16": 0.03, "int64": 0.05, "complex64": 0.03}
"""What a target without float64 may have less: operators that compute in it."""


WITHOUT_FLOAT64 = """
import re
import torch
from torch.nn import functional as F
from torch_backplane import compiler, fallback, ops

x = torch.randn(3, 4).to("mydevice")
image = torch.randn(2, 3, 8, 8).to("mydevice").requires_grad_()
query = torch.randn(1, 2, 4, 8).to("mydevice").requires_grad_()
norm = torch.nn.BatchNorm2d(3).to("mydevice")
assert not compiler.target().dtypes >> 9 & 1
with fallback.budget(calls=0):
    found = [
        x * 2.5, x + 0.5, 1.5 - x, x / 3.0, x**2.5, 2.5**x, x.half() * 2.5, x.long() * 2.5, x.long() / 2, x > 0.1,
        torch.where(x > 0, x, 0.5), x * torch.tensor(2.5, dtype=torch.float64), x.lerp(x * 2, 0.3), x // 1.5,
        torch.addcmul(x, x, x, value=0.5), x.bfloat16() + 0.3, F.leaky_relu(x, 0.1), torch._foreach_mul([x], 2.5)[0],
    ]
    F.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    norm(image).sum().backward()
    norm.eval()(image)
y = x.cpu()
expected = [
    y * 2.5, y + 0.5, 1.5 - y, y / 3.0, y**2.5, 2.5**y, y.half() * 2.5, y.long() * 2.5, y.long() / 2, y > 0.1,
    torch.where(y > 0, y, 0.5), y * torch.tensor(2.5, dtype=torch.float64), y.lerp(y * 2, 0.3), y // 1.5,
    torch.addcmul(y, y, y, value=0.5), y.bfloat16() + 0.3, F.leaky_relu(y, 0.1), torch._foreach_mul([y], 2.5)[0],
]
for a, b in zip(found, expected, strict=True):
    torch.testing.assert_close(a.cpu(), b, equal_nan=True)
assert "the CPU computed" not in str(ops.explain("mul.Tensor").runs)
torch.testing.assert_close((x.double() * 2.5).cpu(), y.double() * 2.5)
assert re.search(r"so far it ran \\d+ times, and the CPU computed 1 call$", str(ops.explain("mul.Tensor").runs))
"""


def test_F12_numbers_stay_on_a_device_without_float64():
    """A number of Python's is a double, and travels in the dtype that is computed."""
    options = "kind=discrete,stream=inline,float64=off"
    subprocess.run(
        [sys.executable, "-c", WITHOUT_FLOAT64],
        env={**os.environ, "MYDEVICE_OPTIONS": options},
        check=True,
        timeout=300,
    )


@pytest.mark.long
@pytest.mark.timeout(3600)  # some minutes on two idle cores
@pytest.mark.xdist_group("device_share")
@pytest.mark.parametrize("options", ["", ",float64=off"], ids=["all dtypes", "without float64"])
def test_F12_samples_stay_on_the_device(tmp_path, options):
    assert set(FLOORS) == set(DTYPES)
    less = FLOAT64 if options else {}
    found = tmp_path / "share.json"
    command = [sys.executable, "-m", "backplane_tools", "conformance", "--suite", "device-share", "-j", "2"]
    subprocess.run(
        [*command, "--device", "mydevice", "--json", found],
        env={**os.environ, "MYDEVICE_OPTIONS": f"kind=discrete,stream=inline{options}", "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=3000,
    )
    shares = {dtype: [] for dtype in DTYPES}
    for row in json.loads(found.read_text())["cases"]:
        if row["checks"]:
            shares[row["dtype"]].append(row["checks"]["stays"] / sum(row["checks"].values()))
    means = {dtype: sum(share) / len(share) for dtype, share in shares.items()}
    assert all(len(share) > 300 for share in shares.values())
    assert {dtype: mean for dtype, mean in means.items() if mean < FLOORS[dtype] - less.get(dtype, 0)} == {}, means
