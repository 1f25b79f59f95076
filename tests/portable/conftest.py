"""Compiled kernels on the simulated device. A compiler that fails is an error: ``tests/run.py`` sets that for the part
"compiled kernels"; elsewhere these tests are left out."""

import os
import sys
from pathlib import Path

import pytest
import torch

from torch_backplane import _backend

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


def pytest_collection_modifyitems(config, items):
    if os.environ.get("MYDEVICE_KERNELS") == "strict":
        return
    mine = [item for item in items if item.path.parent.name == "portable"]
    if mine:
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item.path.parent.name != "portable"]


@pytest.fixture(autouse=True)
def seed():
    """The same random inputs in every run, whichever tests ran before."""
    torch.manual_seed(0)


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
    from contextlib import contextmanager

    from torch_backplane import fallback

    @contextmanager
    def check(kernel):
        before = _backend.C.kernels.calls(f"portable/{kernel}")
        with fallback.budget(calls=0):
            yield
        assert _backend.C.kernels.calls(f"portable/{kernel}") > before

    return check
