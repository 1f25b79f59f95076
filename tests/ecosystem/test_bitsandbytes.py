"""bitsandbytes by its portable kernels: blocks, layers of 4 and 8 bits, its optimizers, against the CPU."""

import bitsandbytes
import pytest
import torch
from beside import Stays
from bitsandbytes import functional


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_blocks_of_4_bits(device, kind):
    def there_and_back(place):
        kept, state = functional.quantize_4bit(drawn(64, 64).to(place), quant_type=kind, blocksize=64)
        return kept.cpu(), functional.dequantize_4bit(kept, state).cpu()

    with Stays(device):
        kept, state = functional.quantize_4bit(drawn(64, 64).to(device), quant_type=kind, blocksize=64)
        assert kept.device == functional.dequantize_4bit(kept, state).device == device
    for found, expected in zip(there_and_back(device), there_and_back("cpu"), strict=True):
        torch.testing.assert_close(found, expected, atol=0, rtol=0)


def test_blocks_of_8_bits(device):
    """Between two codes, the CPU's kernel takes another; both are as far from the number."""

    def apart(place):
        kept, state = functional.quantize_blockwise(drawn(64, 64).to(place))
        assert kept.dtype == torch.uint8
        return (functional.dequantize_blockwise(kept, state).cpu() - drawn(64, 64)).abs()

    torch.testing.assert_close(apart(device).mean(), apart("cpu").mean(), atol=1e-4, rtol=1e-2)
    assert 0 < apart(device).max() < 0.05


def layer(kind, place):
    torch.manual_seed(1)
    whole = torch.nn.Linear(64, 32)
    if kind == "4 bits":
        made = bitsandbytes.nn.Linear4bit(64, 32, compute_dtype=torch.float32, quant_type="nf4")
    else:
        made = bitsandbytes.nn.Linear8bitLt(64, 32, has_fp16_weights=False)
    made.load_state_dict(whole.state_dict())
    made = made.to(place)
    inputs = drawn(5, 64).to(place).requires_grad_()
    outputs = made(inputs)
    outputs.float().square().mean().backward()
    return made.weight, outputs.detach().cpu().float(), inputs.grad.cpu(), whole(drawn(5, 64)).detach()


@pytest.mark.sample
@pytest.mark.parametrize("kind", ["4 bits", "8 bits"])
def test_layers(device, kind):
    weight, *found, _ = layer(kind, device)
    assert weight.device == device
    assert weight.dtype == (torch.uint8 if kind == "4 bits" else torch.int8)
    _, *expected, whole = layer(kind, "cpu")
    assert 1e-3 < (expected[0] - whole).abs().max() < 0.5
    tolerance = 1e-5 if kind == "4 bits" else 0.02  # those of 8 bits multiply in float16
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", ["Adam8bit", "AdamW8bit", "Lion8bit", "AdamW", "PagedAdamW8bit"])
def test_optimizers(device, kind):
    def stepped(place):
        torch.manual_seed(1)
        model = torch.nn.Linear(128, 64).to(place)
        optimizer = getattr(bitsandbytes.optim, kind)(model.parameters(), lr=0.01)
        for _ in range(3):
            model(drawn(5, 128).to(place)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return optimizer.state[model.weight]["state1"], model.weight.detach()

    moment, found = stepped(device)
    assert found.device == device
    assert moment.dtype == (torch.uint8 if "8bit" in kind else torch.float32)
    torch.testing.assert_close(found.cpu(), stepped("cpu")[1], atol=1e-6, rtol=1e-5)
