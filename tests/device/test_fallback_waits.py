"""How often a call of the fallback blocks on the device: once for what it reads, never for what it gives back."""

import os
import subprocess
from pathlib import Path

import pytest

import backplane_sdk

pytestmark = pytest.mark.once

CODE = """
import ctypes
import torch
{setup}
shim = ctypes.CDLL("{path}")
def waits(call):
    torch.{name}.synchronize()
    before = ctypes.c_int64.in_dll(shim, "waits").value
    kept = call()
    after = ctypes.c_int64.in_dll(shim, "waits").value
    torch.{name}.synchronize()
    return after - before
d = "{name}"
x, y = torch.rand(64, 64, device=d), torch.rand(64, 64, device=d)
out = torch.empty(64, 64, device=d)
lists = [x.clone(), y.clone(), x.clone()]
found, scale = torch.zeros(1, device=d), torch.ones(1, device=d)
cases = dict(
    functional=lambda: torch.digamma(x),
    several=lambda: torch.sort(x, 0),
    inputs=lambda: torch.linalg.solve_triangular(x, y, upper=True),
    inplace=lambda: x.erfinv_(),
    strided=lambda: x.t()[::2].erfinv_(),
    out=lambda: torch.digamma(x, out=out),
    lists=lambda: torch._amp_foreach_non_finite_check_and_unscale_(lists, found, scale),
    factory=lambda: torch.tril_indices(5, 5, device=d),
    draw=lambda: x.exponential_(),
)
for call in cases.values():
    call()
print({{name: waits(call) for name, call in cases.items()}})
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    path = tmp_path_factory.mktemp("waits") / "libwaits.so"
    source = Path(__file__).parent / "drivers" / "count_waits.c"
    include = f"-I{backplane_sdk.include_dir()}"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-shared", "-fPIC", include, str(source), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


def count(run_in_process, name, shim, kind, setup=""):
    code = CODE.format(path=shim, name=name, setup=setup)
    result = run_in_process(code, options=f"kind={kind},stream=async", env={f"{name.upper()}_SHIMS": str(shim)})
    return eval(result.stdout)


def test_staged_calls_wait_once_for_what_they_read(run_in_process, name, shim):
    found = count(run_in_process, name, shim, "discrete")
    assert found == dict.fromkeys(found, 1) | {"factory": 0}


def test_calls_in_place_do_not_wait_for_an_idle_stream(run_in_process, name, shim):
    found = count(run_in_process, name, shim, "unified")
    assert found == dict.fromkeys(found, 0)


@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_work_that_is_queued_is_waited_for_once(run_in_process, name, shim, kind):
    code = f"""
    import ctypes
    import torch
    shim = ctypes.CDLL("{shim}")
    x = torch.zeros(1 << 20, device="{name}")
    torch.digamma(x)
    torch.{name}.synchronize()
    for _ in range(20):
        x.fill_(1.0)
    x.fill_(2.0)
    before = ctypes.c_int64.in_dll(shim, "waits").value
    y = torch.digamma(x)
    assert ctypes.c_int64.in_dll(shim, "waits").value - before <= 1
    torch.testing.assert_close(y.cpu(), torch.digamma(torch.full((1 << 20,), 2.0)))
    """
    run_in_process(code, options=f"kind={kind},stream=async", env={f"{name.upper()}_SHIMS": str(shim)})
