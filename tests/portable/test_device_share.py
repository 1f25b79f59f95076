"""How much of PyTorch's operators compiled kernels keep on the device, with memory that the host does not reach."""

import json
import os
import subprocess
import sys

import pytest

from torch_backplane.conformance.suites.device_share import DTYPES

FLOORS = {"float32": 0.87, "bfloat16": 0.95, "int64": 0.87, "complex64": 0.79}
"""Mean share of an operator's samples; forward and backward, of integers forward. They only rise (docs/contract.md)."""


@pytest.mark.long
@pytest.mark.timeout(3600)  # some minutes on two idle cores
@pytest.mark.xdist_group("device_share")
def test_F12_samples_stay_on_the_device(tmp_path):
    assert set(FLOORS) == set(DTYPES)
    found = tmp_path / "share.json"
    command = [sys.executable, "-m", "torch_backplane.cli", "conformance", "--suite", "device-share", "-j", "2"]
    subprocess.run(
        [*command, "--device", "mydevice", "--json", found],
        env={**os.environ, "MYDEVICE_OPTIONS": "kind=discrete,stream=inline", "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=3000,
    )
    shares = {dtype: [] for dtype in DTYPES}
    for row in json.loads(found.read_text())["cases"]:
        if row["checks"]:
            shares[row["dtype"]].append(row["checks"]["stays"] / sum(row["checks"].values()))
    means = {dtype: sum(share) / len(share) for dtype, share in shares.items()}
    assert all(len(share) > 300 for share in shares.values())
    assert {dtype: mean for dtype, mean in means.items() if mean < FLOORS[dtype]} == {}, means
