"""Compiled kernels on the simulated device. A compiler that fails is an error: ``tests/run.py`` sets that for the part
"compiled kernels"; elsewhere these tests are left out."""

import os
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch

from portable.compare import on, same
from torch_backplane import _backend, fallback

sys.path.append(str(Path(__file__).resolve().parents[1] / "device"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "driver"))
from warm import WarmProcesses

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


def pytest_collection_modifyitems(config, items):
    if os.environ.get("MYDEVICE_KERNELS") == "strict":
        return
    mine = [item for item in items if item.path.parent.name == "portable"]
    if mine:
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item.path.parent.name != "portable"]


@pytest.fixture(scope="session")
def run_in_process(device):
    """The pytest plugin's, faster by a fork of a process that has imported torch."""
    processes = WarmProcesses(device.type)
    yield processes
    processes.close()


@pytest.fixture(autouse=True)
def seed():
    """The same random inputs in every run, whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture
def each_compiles():
    """Nothing is taken from Dynamo's or Inductor's cache: its kernels would be there, but not generated."""
    from torch._inductor import config

    torch._dynamo.reset()
    with config.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


@pytest.fixture
def runs(monkeypatch):
    """A log of the calls of compiled graphs that are recorded and replayed (replays.py)."""
    from portable.replays import watched

    return watched(monkeypatch)


@pytest.fixture
def demo(monkeypatch):
    """The modules of examples/demo: cnn, gpt, lockstep."""
    monkeypatch.syspath_prepend(DEMO)
    import cnn
    import gpt
    import lockstep

    yield cnn, gpt, lockstep
    for name in ("cnn", "gpt", "lockstep"):
        sys.modules.pop(name, None)


@pytest.fixture
def ran(device):
    """``with ran("add.Tensor"):`` the block calls that kernel once at least, and nothing goes to the CPU."""

    @contextmanager
    def check(kernel):
        before = _backend.C.kernels.calls(f"portable/{kernel}")
        with fallback.budget(calls=0):
            yield
        assert _backend.C.kernels.calls(f"portable/{kernel}") > before

    return check


@pytest.fixture
def agree(device, ran):
    """``agree("add.Tensor", torch.add, x, y, alpha=2)``: that kernel computes what the CPU does, which is returned.

    ``None`` is any kernel, or the CPU's. ``compare`` takes both results.
    """

    def check(kernel, function, *inputs, compare=same, **keywords):
        arguments, named = on(device, inputs), {key: on(device, value) for key, value in keywords.items()}
        expected = function(*inputs, **keywords)
        with ran(kernel) if kernel else nullcontext():
            got = function(*arguments, **named)
        compare(got, expected)
        return expected

    return check
