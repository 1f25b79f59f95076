"""einops: rearrange, reduce, repeat, pack, einsum and its layers, against the CPU."""

import einops
import pytest
import torch
from beside import assert_computes, assert_learns
from einops.layers.torch import EinMix, Rearrange, Reduce


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


FUNCTIONS = {
    "rearrange": lambda x: einops.rearrange(x, "b c (h i) (w j) -> b (h w) (i j c)", i=2, j=2),
    "repeat": lambda x: einops.repeat(x, "b c h w -> b c h (w again)", again=3),
    "pack": lambda x: einops.pack([x, x[:, 0]], "b * w")[0],
    "einsum": lambda x: einops.einsum(x, x, "b c h w, b d h w -> b c d"),
    **{
        how: lambda x, how=how: einops.reduce(x, "b c (h i) w -> c h w", how, i=2)
        for how in ("sum", "mean", "max", "min", "prod")
    },
}


@pytest.mark.sample
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(device, name):
    assert_computes(device, FUNCTIONS[name], drawn(2, 3, 4, 6))


def test_layers(device):
    def made():
        return torch.nn.Sequential(
            Rearrange("b c (h i) (w j) -> b (h w) (i j c)", i=2, j=2),
            EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=12, d=5),
            Reduce("b t d -> b d", "mean"),
        )

    assert_learns(device, made, drawn(2, 3, 4, 6))
