"""PEFT: adapters of six kinds learn, are saved, loaded, merged and unloaded, against the CPU."""

import pytest
import tiny
import torch
from beside import Stays, assert_learns, assert_same
from peft import (
    AdaLoraConfig,
    IA3Config,
    LoHaConfig,
    LoraConfig,
    OFTConfig,
    PeftModel,
    PrefixTuningConfig,
    get_peft_model,
)

PLACES = {"target_modules": ["q_proj", "v_proj"]}
KINDS = {
    "lora": LoraConfig(task_type="CAUSAL_LM", r=4, **PLACES),
    "dora": LoraConfig(task_type="CAUSAL_LM", r=4, use_dora=True, **PLACES),
    "adalora": AdaLoraConfig(task_type="CAUSAL_LM", init_r=4, total_step=10, **PLACES),
    "ia3": IA3Config(task_type="CAUSAL_LM", feedforward_modules=[], **PLACES),
    "loha": LoHaConfig(r=4, init_weights=True, **PLACES),
    "oft": OFTConfig(task_type="CAUSAL_LM", oft_block_size=8, **PLACES),
}
TOKENS = torch.tensor([[4, 5, 6, 7, 8], [9, 8, 7, 6, 5]])


def loss(model, tokens):
    return model(input_ids=tokens, labels=tokens).loss


def adapted(place, config):
    """A model whose adapter is not the identity."""
    torch.manual_seed(7)
    model = get_peft_model(tiny.llama(), config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.2 * torch.randn(parameter.shape)
    return model.to(place).eval()


@pytest.mark.parametrize("kind", [pytest.param("lora", marks=pytest.mark.sample), *list(KINDS)[1:]])
def test_adapters_learn(device, kind):
    assert_learns(device, lambda: get_peft_model(tiny.llama(), KINDS[kind]), TOKENS, loss=loss, atol=1e-4, rtol=1e-3)


def test_a_prefix_learns(device):
    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    assert_learns(device, lambda: get_peft_model(tiny.llama(), config), TOKENS, loss=loss, atol=1e-4, rtol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_are_saved_loaded_merged_and_unloaded(device, tmp_path, kind):
    model, expected = adapted(device, KINDS[kind]), adapted("cpu", KINDS[kind])(TOKENS).logits
    base, tokens, close = tiny.llama().to(device), TOKENS.to(device), {"atol": 1e-4, "rtol": 1e-3}
    assert not torch.allclose(base(tokens).logits.cpu(), expected, atol=0.01)
    assert_same(model(tokens).logits, expected, device, **close)
    model.save_pretrained(tmp_path)
    for place in (None, device.type):
        again = PeftModel.from_pretrained(tiny.llama().to(device), tmp_path, torch_device=place)
        assert {parameter.device for parameter in again.parameters()} == {device}
        assert_same(again(tokens).logits, expected, device, **close)
    with again.disable_adapter():
        assert torch.equal(again(tokens).logits, base(tokens).logits)
    with Stays(device):
        merged = again.merge_and_unload()
    assert_same(merged(tokens).logits, expected, device, **close)
    assert torch.equal(model.unload()(tokens).logits, base(tokens).logits)
