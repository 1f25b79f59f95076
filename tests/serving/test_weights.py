"""vLLM on the device: adapters of LoRA and quantized weights, against merged and widened weights on the CPU"""

import json

import pytest
import tiny_models
import torch
from engines import engine, generated, tokens
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from vllm import SamplingParams
from vllm.lora.request import LoRARequest

LIBRARIES = ("vllm", "peft")
COUNT = 12
PROMPTS = tiny_models.prompts(3, seed=8)


def adapter(folder, seed):
    base = tiny_models.made("llama")
    torch.manual_seed(seed)
    modules = ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=modules, init_lora_weights=False))
    model.save_pretrained(folder)
    return folder


def test_S04_several_adapters_at_once(folder, expected, tmp_path):
    adapters = [adapter(tmp_path / str(seed), seed) for seed in (1, 2)]
    want = [expected("llama", PROMPTS, COUNT)]
    for path in adapters:
        merged = PeftModel.from_pretrained(tiny_models.made("llama"), path).merge_and_unload()
        want.append(tiny_models.greedy(merged, PROMPTS, COUNT))
    assert want[0] != want[1] != want[2]
    requests = [None, *(LoRARequest(path.name, index + 1, str(path)) for index, path in enumerate(adapters))]
    parameters = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True)
    with engine(folder("llama"), enable_lora=True, max_loras=2, max_lora_rank=8, max_num_seqs=16) as llm:
        prompts, wanted = PROMPTS * 3, [request for request in requests for _ in PROMPTS]
        found = generated(llm, prompts, parameters, lora_request=wanted)
    found = [list(one.outputs[0].token_ids) for one in found]
    assert [found[index : index + len(PROMPTS)] for index in range(0, len(found), len(PROMPTS))] == want


def quantized(source, target, bits, group):
    """A checkpoint of compressed-tensors from one that is not quantized, and the model with widened weights."""
    weights, stored = load_file(source / "model.safetensors"), {}
    for name, weight in weights.items():
        if weight.dim() != 2 or "embed" in name or "lm_head" in name:
            stored[name] = weight
            continue
        rows = weight.unflatten(1, (-1, group or weight.shape[1]))
        most = 2 ** (bits - 1)
        scale = rows.abs().amax(-1) / (most - 1)
        whole = (rows / scale[..., None]).round().clamp(-most, most - 1)
        weights[name] = (whole * scale[..., None]).flatten(1)
        words = (whole.flatten(1).long() + most).unflatten(1, (-1, 32 // bits))
        packed = (words << (bits * torch.arange(32 // bits))).sum(-1)
        packed = torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
        stem = name.removesuffix(".weight")
        stored |= {
            f"{stem}.weight_packed": packed,
            f"{stem}.weight_scale": scale,
            f"{stem}.weight_shape": torch.tensor(weight.shape),
        }
    model = tiny_models.made("llama")
    model.load_state_dict(weights, strict=False)
    target.mkdir()
    save_file(stored, target / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    scheme = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group" if group else "channel"}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": scheme | ({"group_size": group} if group else {})}
        },
        "ignore": ["lm_head"],
    }
    (target / "config.json").write_text(json.dumps(config))
    tiny_models.save_tokenizer(target)
    return model


def gptq(source, target, bits, group):
    """The same for GPTQ's layout, (inputs, outputs)."""
    weights, stored = load_file(source / "model.safetensors"), {}
    for name, weight in weights.items():
        if weight.dim() != 2 or "embed" in name or "lm_head" in name:
            stored[name] = weight.half()
            continue
        rows = weight.t().unflatten(0, (-1, group))
        most = 2 ** (bits - 1)
        scale = (rows.abs().amax(1) / (most - 1)).half()
        whole = (rows / scale[:, None].float()).round().clamp(-most, most - 1)
        weights[name] = (whole * scale[:, None].float()).flatten(0, 1).t()
        stem, per = name.removesuffix(".weight"), 32 // bits
        words = (whole.flatten(0, 1).long() + most).unflatten(0, (-1, per))
        packed = (words << (bits * torch.arange(per))[:, None]).sum(1)
        stored |= {
            f"{stem}.qweight": torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32),
            f"{stem}.scales": scale,
            f"{stem}.qzeros": torch.zeros(len(scale), scale.shape[1] // per, dtype=torch.int32),
            f"{stem}.g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // group,
        }
    model = tiny_models.made("llama")
    model.load_state_dict(weights, strict=False)
    target.mkdir()
    save_file(stored, target / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "desc_act": False,
        "sym": True,
    }
    (target / "config.json").write_text(json.dumps(config))
    tiny_models.save_tokenizer(target)
    return model


@pytest.mark.parametrize("bits", [4, 8])
def test_S04_weights_of_gptq(folder, tmp_path, bits):
    model = gptq(folder("llama"), tmp_path / "quantized", bits, 32)
    with engine(tmp_path / "quantized", dtype="float16") as llm:
        assert tokens(llm, PROMPTS, COUNT) == tiny_models.greedy(model, PROMPTS, COUNT)


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 32), (8, None)])
def test_S04_weights_of_4_and_8_bits(folder, expected, tmp_path, bits, group):
    model = quantized(folder("llama"), tmp_path / "quantized", bits, group)
    want = tiny_models.greedy(model, PROMPTS, COUNT)
    assert bits == 8 or want != expected("llama", PROMPTS, COUNT)
    with engine(tmp_path / "quantized") as llm:
        assert tokens(llm, PROMPTS, COUNT) == want
