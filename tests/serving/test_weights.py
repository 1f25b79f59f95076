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


@pytest.mark.long_after_first
@pytest.mark.parametrize("mode", [None, 2, 3], ids=["eager", "mode 2", "mode 3"])
def test_S04_several_adapters_at_once(folder, expected, tmp_path, mode):
    adapters = [adapter(tmp_path / str(seed), seed) for seed in (1, 2)]
    want = [expected("llama", PROMPTS, COUNT)]
    for path in adapters:
        merged = PeftModel.from_pretrained(tiny_models.made("llama"), path).merge_and_unload()
        want.append(tiny_models.greedy(merged, PROMPTS, COUNT))
    assert want[0] != want[1] != want[2]
    requests = [None, *(LoRARequest(path.name, index + 1, str(path)) for index, path in enumerate(adapters))]
    parameters = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True)
    options = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8, "max_num_seqs": 16}
    if mode:
        options |= {"enforce_eager": False, "compilation_config": {"mode": mode}}
    with engine(folder("llama"), **options) as llm:
        prompts, wanted = PROMPTS * 3, [request for request in requests for _ in PROMPTS]
        found = generated(llm, prompts, parameters, lora_request=wanted)
    found = [list(one.outputs[0].token_ids) for one in found]
    assert [found[index : index + len(PROMPTS)] for index in range(0, len(found), len(PROMPTS))] == want


def stored(source, target, change, config):
    """A checkpoint whose linear weights are changed, and the model with the weights that it stands for.

    ``change(weight)`` returns what is stored, by its suffix, and the weight.
    """
    weights, tensors = load_file(source / "model.safetensors"), {}
    for name, weight in weights.items():
        if weight.dim() != 2 or "embed" in name or "lm_head" in name:
            tensors[name] = weight if config["quant_method"] == "compressed-tensors" else weight.half()
            continue
        found, weights[name] = change(weight)
        tensors |= {f"{name.removesuffix('.weight')}.{suffix}": one.contiguous() for suffix, one in found.items()}
    model = tiny_models.made("llama")
    model.load_state_dict(weights, strict=False)
    target.mkdir()
    save_file(tensors, target / "model.safetensors")
    text = json.loads((source / "config.json").read_text()) | {"quantization_config": config}
    (target / "config.json").write_text(json.dumps(text))
    tiny_models.save_tokenizer(target)
    return model


def packed(whole, bits, dim, order=None):
    """Numbers without a sign in words of 32 bits, along ``dim``."""
    words = whole.long().movedim(dim, -1).unflatten(-1, (-1, 32 // bits))[..., order or slice(None)]
    words = (words << (bits * torch.arange(32 // bits))).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).movedim(-1, dim)


def steps(rows, bits, zero):
    """``rows`` (..., of a group) as numbers without a sign, their scale, and their zero point."""
    if zero:
        low, high = rows.amin(-1, keepdim=True).clamp(max=0), rows.amax(-1, keepdim=True).clamp(min=0)
        scale = ((high - low) / (2**bits - 1)).half().float()
        point = (-low / scale).round()
    else:
        scale = (rows.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)).half().float()
        point = torch.full_like(scale, 2 ** (bits - 1))
    return (rows / scale + point).round().clamp(0, 2**bits - 1), scale, point


def compressed(source, target, bits, group, zero=False):
    def change(weight):
        whole, scale, point = steps(weight.unflatten(1, (-1, group or weight.shape[1])), bits, zero)
        found = {
            "weight_packed": packed(whole.flatten(1), bits, 1),
            "weight_scale": scale[..., 0],
            "weight_shape": torch.tensor(weight.shape),
        }
        if zero:
            found["weight_zero_point"] = packed(point[..., 0], bits, 0)
        return found, ((whole - point) * scale).flatten(1)

    scheme = {"num_bits": bits, "type": "int", "symmetric": not zero, "strategy": "group" if group else "channel"}
    return stored(
        source, target, change, of_compressed("pack-quantized", scheme | ({"group_size": group} if group else {}))
    )


def of_compressed(form, weights, activations=None):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def gptq(source, target, bits, group):
    """(inputs, outputs), packed along the inputs."""

    def change(weight):
        whole, scale, point = steps(weight.unflatten(1, (-1, group)), bits, False)
        found = {
            "qweight": packed(whole.flatten(1).t(), bits, 0),
            "scales": scale[..., 0].t().half(),
            "qzeros": torch.zeros(scale.shape[1], len(scale) // (32 // bits), dtype=torch.int32),
            "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // group,
        }
        return found, ((whole - point) * scale).flatten(1)

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False, "sym": True}
    return stored(source, target, change, config)


def awq(source, target, group):
    """(inputs, outputs), packed along the outputs in an order of its own, with zero points."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def change(weight):
        whole, scale, point = steps(weight.unflatten(1, (-1, group)), 4, True)
        found = {
            "qweight": packed(whole.flatten(1).t(), 4, 1, order),
            "scales": scale[..., 0].t().half(),
            "qzeros": packed(point[..., 0].t(), 4, 1, order),
        }
        return found, ((whole - point) * scale).flatten(1)

    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    return stored(source, target, change, config)


FLOAT8 = torch.float8_e4m3fn
MOST = torch.finfo(FLOAT8).max


def float8(source, target, kind):
    """With a scale of each row, of each block of 32 rows and columns, or of all layers, whose parts vLLM stacks."""
    everything = max(one.abs().max() for one in load_file(source / "model.safetensors").values())

    def change(weight):
        if kind == "block":
            blocks = weight.unflatten(1, (-1, 32)).unflatten(0, (-1, 32))
            scale = blocks.abs().amax((1, 3), keepdim=True) / MOST
            whole = (blocks / scale).to(FLOAT8)
            wide = (whole.float() * scale).flatten(2).flatten(0, 1)
            return {"weight": whole.flatten(2).flatten(0, 1), "weight_scale_inv": scale[:, 0, :, 0]}, wide
        scale = (weight.abs().amax(1, keepdim=True) if kind == "channel" else everything) / MOST
        whole = (weight / scale).to(FLOAT8)
        return {"weight": whole, "weight_scale": scale}, whole.float() * scale

    config = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    if kind == "block":
        config["weight_block_size"] = [32, 32]
    if kind == "channel":
        scheme = {"num_bits": 8, "type": "float", "symmetric": True}
        activations = scheme | {"strategy": "token", "dynamic": True}
        config = of_compressed("float-quantized", scheme | {"strategy": "channel"}, activations)
    return stored(source, target, change, config)


def rounded_online(kind):
    """The model whose weights are rounded as vLLM does it, after it has stacked those that it computes at once."""
    model = tiny_models.made("llama").half().float()
    for layer in model.model.layers:
        inner, outer = layer.self_attn, layer.mlp
        stacks = [inner.q_proj, inner.k_proj, inner.v_proj], [outer.gate_proj, outer.up_proj]
        for stack in (*stacks, [inner.o_proj], [outer.down_proj]):
            weight = torch.cat([one.weight.data for one in stack])
            scale = (weight.abs().max() if kind == "fp8_per_tensor" else weight.abs().amax(1, keepdim=True)) / MOST
            parts = ((weight / scale).to(FLOAT8).float() * scale).split([len(one.weight) for one in stack])
            for one, part in zip(stack, parts, strict=True):
                one.weight.data = part
    return model


def agrees(folder, model, **options):
    """The tokens are the model's; with activations in float16, much nearer to its best than those of exact weights."""
    with engine(folder, **options) as llm:
        found = tokens(llm, PROMPTS, COUNT)
    if options.get("dtype") != "float16":
        assert found == tiny_models.greedy(model, PROMPTS, COUNT)
        return
    model = model.half().float()  # as the engine has widened weights, and those that are not quantized
    others = tiny_models.greedy(tiny_models.made("llama"), PROMPTS, COUNT)
    assert tiny_models.shortfall(model, PROMPTS, found) < tiny_models.shortfall(model, PROMPTS, others) / 4


@pytest.mark.long_after_first
@pytest.mark.parametrize("bits", [4, 8])
def test_S04_weights_of_gptq(folder, tmp_path, bits):
    agrees(tmp_path / "new", gptq(folder("llama"), tmp_path / "new", bits, 32), dtype="float16")


def test_S04_weights_of_awq(folder, tmp_path):
    agrees(tmp_path / "new", awq(folder("llama"), tmp_path / "new", 32), dtype="float16")


@pytest.mark.long_after_first
@pytest.mark.parametrize(
    ("bits", "group", "zero"), [(4, 32, False), (8, 32, False), (8, None, False), (4, 32, True), (4, None, True)]
)
def test_S04_weights_of_4_and_8_bits(folder, expected, tmp_path, bits, group, zero):
    model = compressed(folder("llama"), tmp_path / "new", bits, group, zero)
    assert bits == 8 or tiny_models.greedy(model, PROMPTS, COUNT) != expected("llama", PROMPTS, COUNT)
    agrees(tmp_path / "new", model)


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", ["channel", "tensor", "block"])
def test_S04_weights_of_float8(folder, expected, tmp_path, kind):
    model = float8(folder("llama"), tmp_path / "new", kind)
    assert tiny_models.greedy(model, PROMPTS, COUNT) != expected("llama", PROMPTS, COUNT)
    agrees(tmp_path / "new", model, dtype="float16")


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", ["fp8_per_tensor", "fp8_per_channel"])
def test_S04_weights_that_become_float8_as_they_load(folder, kind):
    agrees(folder("llama"), rounded_online(kind), dtype="float16", quantization=kind)


def test_S04_weights_that_do_not_fit_are_refused_by_name(folder, tmp_path):
    compressed(folder("llama"), tmp_path / "new", 8, 32, zero=True)
    with pytest.raises(Exception, match="weights of uint8 with zero points are not served on mydevice"):
        agrees(tmp_path / "new", None)


def test_S04_bfloat16_is_as_near_as_on_the_cpu(folder):
    """Errors of its logarithms of probabilities are at most twice those of Transformers in bfloat16."""
    errors = {"cpu": 0.0, "device": 0.0}
    exact, rough = tiny_models.made("llama"), tiny_models.made("llama").bfloat16()
    options = {"temperature": 0, "max_tokens": 1, "logprobs": tiny_models.VOCABULARY}
    with engine(folder("llama"), dtype="bfloat16", max_logprobs=tiny_models.VOCABULARY) as llm:
        out = generated(llm, PROMPTS, SamplingParams(**options))
    for prompt, one in zip(PROMPTS, out, strict=True):
        with torch.no_grad():
            want, near = (
                model(torch.tensor([prompt])).logits[0, -1].float().log_softmax(-1) for model in (exact, rough)
            )
        found = one.outputs[0].logprobs[0]
        found = torch.tensor([found[token].logprob for token in range(tiny_models.VOCABULARY)])
        errors["cpu"] += (near - want).abs().mean().item()
        errors["device"] += (found - want).abs().mean().item()
    assert 0 < errors["device"] <= 2 * errors["cpu"], errors
