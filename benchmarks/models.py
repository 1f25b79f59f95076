"""Models that users bring, with random weights: a forward pass and a training step on the device against the CPU.

They come from timm, Transformers and Diffusers, which the environment of ``make test-ecosystem`` has; elsewhere a row
shows what to install. Each figure is processor time of one process with one thread.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.row import COMPILED, COMPILED_ASYNC, Result, Row
from benchmarks.timing import ratio, wait

Built = tuple[nn.Module, dict[str, Any]]  # a model, and what it is called with


def _resnet() -> Built:
    import timm

    return timm.create_model("resnet50"), {"x": torch.randn(2, 3, 128, 128)}


def _resnet_channels_last() -> Built:
    model, names = _resnet()
    kept = torch.channels_last
    return model.to(memory_format=kept), {"x": names["x"].contiguous(memory_format=kept)}


def _vit() -> Built:
    import timm

    return timm.create_model("vit_base_patch16_224"), {"x": torch.randn(1, 3, 224, 224)}


def _bert() -> Built:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(num_hidden_layers=6)), {"input_ids": torch.randint(0, 30000, (2, 64))}


def _llama() -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 2, "vocab_size": 4096}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads))
    return model, {"input_ids": torch.randint(0, 4096, (1, 256)), "use_cache": False}


def _mixture() -> Built:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = {"hidden_size": 256, "moe_intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 4096}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32}
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **heads, num_experts=8, num_experts_per_tok=2))
    model.set_experts_implementation("grouped_mm")
    return model, {"input_ids": torch.randint(0, 4096, (1, 256)), "use_cache": False}


def _whisper() -> Built:
    from transformers import WhisperConfig, WhisperModel

    sizes = {"d_model": 384, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
    layers = {
        f"{part}_{what}": count
        for part in ("encoder", "decoder")
        for what, count in (("layers", 4), ("attention_heads", 6))
    }
    names = {"input_features": torch.randn(1, 80, 3000), "decoder_input_ids": torch.randint(0, 50000, (1, 32))}
    return WhisperModel(WhisperConfig(**sizes, **layers)), names | {"use_cache": False}


def _unet() -> Built:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=32,
        block_out_channels=(64, 128, 128),
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    )
    return model, {"sample": torch.randn(1, 3, 32, 32), "timestep": torch.tensor([500])}


MODELS: dict[str, Callable[[], Built]] = {
    "ResNet-50, 2 x 128 x 128": _resnet,
    "ResNet-50, channels_last": _resnet_channels_last,
    "ViT-B, 1 x 224 x 224": _vit,
    "BERT, 6 layers of 768, 2 x 64": _bert,
    "Llama, 2 layers of 512, 256 tokens": _llama,
    "mixture of 8 experts, 2 layers of 256": _mixture,
    "Whisper-tiny, 30 s": _whisper,
    "U-Net, 32 x 32": _unet,
}


# Eager in float32, compiled, or eager in bfloat16 where autocast chooses it; and the budgets.
HOW = {"": 1.15, "torch.compile": 1.1, "autocast": 1.15}


def _first(output: Any) -> torch.Tensor:
    """The tensor that a model's output is about."""
    return output if isinstance(output, torch.Tensor) else output[0]


def _sides(build: Callable[[], Built], device: str) -> list[tuple[nn.Module, dict[str, Any]]]:
    """The same model and inputs on the device and on the CPU."""
    torch.manual_seed(0)
    model, names = build()
    sides = []
    for where in (device, "cpu"):
        moved = {name: one.to(where) if isinstance(one, torch.Tensor) else one for name, one in names.items()}
        sides.append((copy.deepcopy(model).to(where), moved))
    return sides


def _call(model: nn.Module, names: dict[str, Any], how: str) -> Callable[[], torch.Tensor]:
    """How: a key of HOW."""
    called = torch.compile(model, dynamic=False) if how == "torch.compile" else model
    device = next(model.parameters()).device.type

    def call() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=how == "autocast"):
            return _first(called(**names))

    return call


def _forward(model: nn.Module, names: dict[str, Any], how: str) -> Callable[[], torch.Tensor]:
    return torch.no_grad()(_call(model.eval(), names, how))


def _training(model: nn.Module, names: dict[str, Any], how: str) -> Callable[[], torch.Tensor]:
    call = _call(model.train(), names, how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = call().float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Raises AssertionError for another model's values; dropout draws other numbers, and bfloat16 routes to others."""
    near = 0.1 if theirs.dtype == torch.float32 else 0.2
    torch.testing.assert_close(ours.cpu(), theirs, rtol=near, atol=near)


def _compared(steps: list[Callable[[], object]], rounds: int) -> Result:
    sides = [{"step": step, "wait": wait} for step in steps]
    return ratio("step(); wait()", *sides, rounds=rounds, timer=time.process_time)


def _measure(
    build: Callable[[], Built], kind: Callable[..., Callable[[], torch.Tensor]], how: str, rounds: int
) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        torch._dynamo.reset()
        steps = [kind(*side, how) for side in _sides(build, device)]
        _same(*(step() for step in steps))
        return _compared(steps, rounds)

    return measure


def _token(model: nn.Module, names: dict[str, Any], device: str) -> Callable[[], torch.Tensor]:
    """The token behind a prompt, again and again at the same place of a cache that does not move."""
    from transformers import StaticCache

    cache = StaticCache(model.eval().config, max_cache_len=320)
    token, place = torch.ones(1, 1, dtype=torch.long, device=device), torch.full((1, 1), 256, device=device)
    with torch.no_grad():
        model(names["input_ids"], past_key_values=cache, use_cache=True)

    def step() -> torch.Tensor:
        for layer in cache.layers:
            layer.cumulative_length.fill_(256)
        with torch.no_grad():
            return _first(model(token, position_ids=place, past_key_values=cache, use_cache=True))

    return step


def _decode(device: str, rounds: int) -> Result:
    """A token after 256: the replay of a graph on the device, the model on the CPU."""
    ours, theirs = _sides(_llama, device)
    steps = [_token(*ours, device), _token(*theirs, "cpu")]
    module = torch.get_device_module(device)
    side = module.Stream()
    side.wait_stream(module.current_stream())
    with side:
        steps[0]()
    module.synchronize()
    graph = torch.accelerator.Graph()
    with side, graph:
        logits = steps[0]()
    logits.zero_()
    graph.replay()
    _same(logits, steps[1]())

    return _compared([graph.replay, steps[1]], rounds)


def rows(rounds: int) -> list[Row]:
    """The models' rows, of so many rounds each."""
    steps = [
        Row(
            f"model, {name}, {what}{', ' if how else ''}{how}",
            _measure(build, kind, how, rounds),
            budget=budget,
            configurations=(COMPILED,),
        )
        for name, build in MODELS.items()
        for what, kind in (("forward", _forward), ("training", _training))
        for how, budget in HOW.items()
    ]
    decode = partial(_decode, rounds=rounds)
    token = Row("model, Llama, a token by a replayed graph", decode, budget=1.15, configurations=(COMPILED_ASYNC,))
    return [*steps, token]
