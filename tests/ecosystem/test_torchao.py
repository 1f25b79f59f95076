"""torchao: weights of 4 and 8 bits, Adam with moments of 4 and 8 bits and float8, training for int4 and in float8."""

import copy
from pathlib import Path

import pytest
import torch
from beside import Stays, assert_learns, assert_same
from torch import nn
from torchao import optim, quantization
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.quantization.granularity import PerGroup
from torchao.quantization.qat import QATConfig

WEIGHTS = {
    "int8": quantization.Int8WeightOnlyConfig,
    "int8 dynamic": quantization.Int8DynamicActivationInt8WeightConfig,
    "float8": quantization.Float8WeightOnlyConfig,
}


def made():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))


def inputs():
    return torch.randn(5, 64, generator=torch.Generator().manual_seed(2))


@torch.no_grad()
@pytest.mark.parametrize("kind", [pytest.param("int8", marks=pytest.mark.sample), *list(WEIGHTS)[1:]])
def test_quantized_weights(device, kind, tmp_path):
    """Quantized on the device, or before they are moved there; saved and loaded."""
    reference = made()
    quantization.quantize_(reference, WEIGHTS[kind]())
    expected = reference(inputs())
    assert 1e-4 < (expected - made()(inputs())).abs().max() < 0.1
    model = made().to(device)
    with Stays(device):
        quantization.quantize_(model, WEIGHTS[kind]())
        found = model(inputs().to(device))
    assert_same(found, expected, device, atol=1e-4, rtol=1e-3)
    assert model[0].weight.qdata.device == device
    assert model[0].weight.qdata.itemsize == 1
    assert_same(copy.deepcopy(reference).to(device)(inputs().to(device)), expected, device)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    again = made().to(device)
    again.load_state_dict(torch.load(tmp_path / "model.pt"), assign=True)
    assert torch.equal(again(inputs().to(device)), found)


def stepped(kind, place):
    """Of 4096 numbers, the least whose moments are quantized."""
    torch.manual_seed(1)
    model = nn.Linear(64, 64, bias=False).to(place)
    optimizer = getattr(optim, kind)(model.parameters(), lr=0.01)
    for _ in range(3):
        model(inputs().to(place)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.weight.detach().cpu(), optimizer.state[model.weight]["exp_avg_sq"]


MOMENTS = """
import json, sys
sys.path.insert(0, {folder!r})
from test_torchao import stepped
weight, moment = stepped({kind!r}, "mydevice")
apart = (weight - stepped({kind!r}, "cpu")[0]).abs().max().item()
print(json.dumps([type(moment).__name__, str(moment.device), apart]))
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["8bit", "4bit", "Fp8"])
def test_moments_of_few_bits(answer, kind):
    """The library compiles its step."""
    code = MOMENTS.format(folder=str(Path(__file__).parent), kind=f"AdamW{kind}")
    name, device, apart = answer(code, MYDEVICE_KERNELS="wait")
    assert (name, device) == (f"OptimState{kind}", "mydevice:0")
    assert apart < 1e-5


def test_weights_of_4_bits(device):
    """Of groups, in bytes. ``Int4WeightOnlyConfig`` packs them for CUDA's kernels, by a package of these."""
    config = quantization.IntxWeightOnlyConfig(torch.int4, PerGroup(32))
    reference, model = made(), made().to(device)
    for one in reference, model:
        quantization.quantize_(one, config)
    expected = reference(inputs()).detach()
    assert 1e-3 < (expected - made()(inputs())).abs().max() < 0.3
    with Stays(device):
        found = model(inputs().to(device)).detach()
    assert_same(found, expected, device, atol=1e-5, rtol=1e-4)


def test_training_in_float8(device):
    """Products of float8 with scales of tensors, forward and backward."""

    def prepared():
        return convert_to_float8_training(made(), config=Float8LinearConfig())

    rows = torch.randn(16, 64, generator=torch.Generator().manual_seed(2))
    assert_learns(device, prepared, rows, atol=2e-3, rtol=0.05)
    whole, rounded = made()(rows), prepared()(rows)
    assert 1e-3 < (whole - rounded).abs().max() < 0.1


def test_training_for_quantization(device):
    """With rounded weights and activations, and the gradients of what is not rounded."""

    def prepared():
        model = made()
        base = quantization.Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32))
        quantization.quantize_(model, QATConfig(base, step="prepare"))
        return model

    assert_learns(device, prepared, inputs(), atol=1e-4, rtol=1e-3)
