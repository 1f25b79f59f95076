"""The demo's models train by compiled kernels alone: nothing of a step goes to the CPU, and it is the CPU's step."""

import copy
import sys
from pathlib import Path

import pytest
import torch

from torch_backplane import fallback

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(DEMO)
    import cnn
    import gpt
    import lockstep

    yield cnn, gpt, lockstep
    for name in ("cnn", "gpt", "lockstep"):
        sys.modules.pop(name, None)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["CNN", "GPT"])
def test_F10_a_models_step_is_computed_by_compiled_kernels_alone(device, demo, name):
    cnn, gpt, lockstep = demo
    if name == "CNN":
        images, labels, _, _ = cnn.digits()
        model, batches = cnn.network(), list(cnn.batches(images, labels, 3))
    else:
        text = gpt.repository_text()
        torch.manual_seed(0)
        model = gpt.GPT(len(text.characters), width=32, layers=2)
        batches = list(text.batches(3, 4, model.context))
    twin = copy.deepcopy(model)
    model.to(device)
    with fallback.budget(calls=0):
        losses = list(lockstep.train(model, batches))
    expected = list(lockstep.train(twin, batches))
    assert losses[0] == pytest.approx(expected[0], abs=1e-4)
    assert losses[-1] == pytest.approx(expected[-1], abs=1e-2)
