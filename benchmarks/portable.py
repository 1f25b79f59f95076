"""Kernels that the core compiles on the simulated device, a row for each kind of loop, in processor time.

Against the CPU's own, which are written for it by hand: what a budget allows is the price of one source for all chips.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn import functional

from benchmarks.row import COMPILED, Result, Row
from benchmarks.timing import ratio, wait

MIB = 1 << 20
TENSORS: dict[str, tuple[int, ...]] = {  # by their name in a statement
    "x": (MIB,),
    "y": (MIB,),
    "s": (8,),
    "m": (1024, 1024),
    "k": (512, 512),
    "tiny": (64, 64),
    "large": (2048, 2048),
    "batch": (16, 128, 128),
    "token": (1, 4096),
    "tokens": (16, 4096),
    "weight": (4096, 4096),
    "short": (1, 64),
    "narrow": (4096, 64),
    "four": (4, 256),
    "wider": (4096, 256),
    "routed": (256, 512),
    "experts": (4, 512, 512),
    "n": (32768, 32),
    "v": (1024,),
    "images": (8, 64, 32, 32),
    "filters": (64, 64, 3, 3),
    "deep": (64, 1, 3, 3),
    "grown": (64, 32, 4, 4),
    "table": (1000, 64),
    "eights": (4096, 8),
    "q": (4, 8, 512, 64),
    "u": (2, 8, 1024, 40),
    "asked": (1, 8, 1, 64),
    "line": (1, 8, 512, 64),
    "small": (8, 64, 14, 14),
    "photos": (8, 3, 224, 224),
    "points": (262144, 3),
    "tens": (26214, 10),
    "pairs": (131072, 2),
    "scores": (4096, 64),
}
POINTWISE = {"unary (exp)": "x.exp()", "gelu": "functional.gelu(x)", "mul": "x * y", "add": "torch.add(x, y)"}

# What a row runs, its dtype, its budget.
STATEMENTS: list[tuple[str, str, torch.dtype, float | None]] = [
    ("add, 8 floats", "torch.add(s, s)", torch.float32, 1.2),
    *(
        (f"{name}, 1M", statement, dtype, budget)
        for dtype, budget in ((torch.float32, 1.2), (torch.bfloat16, 1.2), (torch.float16, 1.5))
        for name, statement in POINTWISE.items()
    ),
    ("power by a number, 1M", "x ** 2.5", torch.float32, 1.2),
    ("power by 1, 1M", "x ** 1.0", torch.float32, 1.2),
    ("relu6, 1M", "functional.relu6(x)", torch.float32, 1.2),
    ("remainder by a number, 1M", "x % 0.3", torch.float32, 6.0),
    ("lt, 1M", "x < y", torch.float32, 1.2),
    ("where, 1M", "torch.where(mask, x, y)", torch.float32, 1.2),
    ("cast to float32, 1M", "x.float()", torch.bfloat16, 1.2),
    ("cast to float32, 1M", "x.float()", torch.float16, 1.5),
    ("cast from float32, 1M", "x.bfloat16()", torch.float32, 1.2),
    ("cast from float32 to half, 1M", "x.half()", torch.float32, 1.5),
    *(
        (f"sum {name}, 1024 x 1024", statement, dtype, budget)
        for dtype, budget in ((torch.float32, 1.3), (torch.float16, 1.3))
        for name, statement in (("of all", "m.sum()"), ("of rows", "m.sum(1)"), ("of columns", "m.sum(0)"))
    ),
    ("sum of all, 1M complex", "c.sum()", torch.float32, 1.6),
    ("sum of rows of 10, 26214", "tens.sum(1)", torch.float32, 1.3),
    ("argmax of rows of 10, 26214", "tens.argmax(1)", torch.float32, 1.3),
    ("sum of 2 columns, 131072", "pairs.sum(0)", torch.float32, 1.3),
    ("softmax, 131072 x 2", "pairs.softmax(1)", torch.float32, 1.2),
    ("the largest 2 of 64, 4096 rows", "scores.topk(2)", torch.float32, 1.3),
    ("softmax, 1024 x 1024", "m.softmax(1)", torch.float32, 1.2),
    ("softmax, 1024 x 1024", "m.softmax(1)", torch.bfloat16, 2.0),
    ("softmax, 1024 x 1024", "m.softmax(1)", torch.float16, 1.3),
    ("softmax, 32768 x 32", "n.softmax(1)", torch.float32, 1.3),
    ("layer norm, 1024 x 1024", "functional.layer_norm(m, (1024,))", torch.float32, 1.3),
    ("layer norm, 1024 x 1024", "functional.layer_norm(m, (1024,), m[0], m[1])", torch.float16, 1.3),
    ("cumsum of rows, 1024 x 1024", "m.cumsum(1)", torch.float16, 1.3),
    ("matmul, 64", "tiny @ tiny", torch.float32, 1.3),
    ("matmul, 512", "k @ k", torch.float32, 1.3),
    ("matmul, 512", "k @ k", torch.bfloat16, 1.3),
    ("matmul, 512", "k @ k", torch.float16, 1.3),
    ("matmul, 2048", "large @ large", torch.float32, 1.3),
    ("batched matmul, 16 x 128", "batch @ batch", torch.float32, 1.3),
    ("matmul, 1024 x 16 x 1024", "torch.mm(m[:, :16], m[:16])", torch.float32, 1.3),
    ("matmul, 256 x 64 x 1024 into columns", "torch.mm(narrow[:256], m[:64], out=columns)", torch.float32, 1.3),
    ("linear, 1 x 4096 x 4096", "functional.linear(token, weight)", torch.float32, 1.3),
    ("linear, 1 x 64 x 4096", "functional.linear(short, narrow)", torch.float32, 1.3),
    ("linear, 4 x 256 x 4096", "functional.linear(four, wider)", torch.float32, 1.3),
    ("linear, 16 x 4096 x 4096", "functional.linear(tokens, weight)", torch.float32, 1.3),
    ("linear, 1 x 4096 x 4096", "functional.linear(token, weight)", torch.bfloat16, 1.3),
    ("linear, 16 x 4096 x 4096", "functional.linear(tokens, weight)", torch.bfloat16, 1.5),
    ("grouped products, 4 experts of 512 x 512", "torch._grouped_mm(routed, experts, offs=ends)", torch.float32, 1.3),
    ("grouped products, 4 experts of 512 x 512", "torch._grouped_mm(routed, experts, offs=ends)", torch.bfloat16, 1.3),
    ("convolution, 3 x 3", "functional.conv2d(images, filters, padding=1)", torch.float32, 1.3),
    ("convolution, 3 x 3", "functional.conv2d(images, filters, padding=1)", torch.bfloat16, 1.3),
    ("convolution, 3 x 3, channels_last", "functional.conv2d(images_last, filters, padding=1)", torch.float32, 1.5),
    ("convolution, depthwise", "functional.conv2d(images, deep, padding=1, groups=64)", torch.float32, 1.3),
    ("convolution, depthwise, 14 x 14", "functional.conv2d(small, deep, padding=1, groups=64)", torch.float32, 1.3),
    ("convolution, transposed", "functional.conv_transpose2d(images, grown, stride=2)", torch.float32, 1.5),
    ("transposed copy, 1024 x 1024", "m.t().contiguous()", torch.float32, 1.3),
    ("transposed copy, 1024 x 1024", "m.t().contiguous()", torch.bfloat16, 1.3),
    (
        "copy to channels_last, 8 x 3 x 224 x 224",
        "photos.to(memory_format=torch.channels_last)",
        torch.float32,
        1.3,
    ),
    ("mul of rows of 3, 262144", "points * points[0]", torch.float32, 1.3),
    ("add of a transposed one, 1024 x 1024", "m + m.t()", torch.float32, 1.3),
    ("flip of the innermost, 1024 x 1024", "m.flip(1)", torch.float32, 1.3),
    ("roll of rows by one, 1024 x 1024", "m.roll(1, 1)", torch.float32, 1.3),
    ("padding by reflection, 8 x 64 x 32 x 32", "functional.pad(images, (1, 1, 1, 1), 'reflect')", torch.float32, 1.8),
    ("cat, 64 x 32 x 32 twice", "torch.cat([n[:2048], n[2048:4096]], 1)", torch.float32, 1.3),
    ("index_select, 4096 rows", "table.index_select(0, rows)", torch.float32, 1.3),
    ("embedding, backward, 4096 of 1000 rows", "embedding_backward(scores, rows, 1000, -1, False)", torch.float16, 1.3),
    ("index_add of rows of 8, 4096", "eights[:1000].index_add(0, rows, eights)", torch.float16, 1.3),
    ("gather, 1M", "m.gather(1, places)", torch.float32, 1.3),
    ("max pool", "functional.max_pool2d(images, 2)", torch.float32, 1.3),
    ("max pool, backward", "torch.autograd.grad(largest, leaf, largest, retain_graph=True)", torch.float32, 2.0),
    ("attention over pages, 8 requests of 512 keys", "decode()", torch.float32, 0.5),
    ("attention over pages, 8 requests of 512 keys", "decode()", torch.bfloat16, 0.5),
    ("attention over pages, a prompt of 512", "prompt()", torch.float32, 1.2),
    ("attention, causal, 4 x 8 x 512 x 64", "attend(q, q, q, is_causal=True)", torch.float32, 1.0),
    ("attention, causal, 4 x 8 x 512 x 64", "attend(q, q, q, is_causal=True)", torch.bfloat16, 1.0),
    ("attention, a token of 8 heads over 512", "attend(asked, line, line)", torch.float32, 1.2),
    ("attention, 2 x 8 x 1024 x 40", "attend(u, u, u)", torch.float32, 1.2),
    ("attention and its gradient, 2 x 8 x 1024 x 40", "torch.autograd.grad(attend(w, u, u), w, u)", torch.float32, 1.2),
    ("average pool, backward", "torch.autograd.grad(mean, leaf, mean, retain_graph=True)", torch.float32, 1.3),
]


def _attention(generator: torch.Generator, where: str, dtype: torch.dtype, requests: int, queries: int) -> Any:
    """Eight heads over four of a cache of 512 keys a request; on the CPU, pages are gathered first."""
    order = torch.randperm(requests * 32, generator=generator).view(requests, 32)
    cache = torch.rand(requests * 32, 4, 16, 2 * 64, generator=generator).to(where, dtype)
    query = torch.rand(requests * queries, 8, 64, generator=generator).to(where, dtype)
    if where == "cpu":
        mask = torch.ones(queries, 512, dtype=torch.bool).tril(512 - queries)

        def gathered() -> torch.Tensor:
            keys, values = cache[order].transpose(1, 2).flatten(2, 3).split(64, -1)
            rows = query.view(requests, queries, 8, 64).transpose(1, 2)
            return functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, enable_gqa=True)

        return gathered
    out, table, lines = torch.empty_like(query), order.to(where), cache.transpose(1, 2).split(64, -1)
    lengths = torch.full((requests,), 512, device=where)
    starts = torch.arange(requests + 1, device=where) * queries
    options = {"scale": 0.125, "max_query_len": queries}
    return lambda: torch.ops.backplane.paged_attention(query, *lines, table, lengths, starts, out, **options)


@cache
def _names(dtype: torch.dtype, where: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    names: dict[str, Any] = {
        name: torch.rand(shape, generator=generator).to(where, dtype) for name, shape in TENSORS.items()
    }
    names["decode"] = _attention(generator, where, dtype, 8, 1)
    names["prompt"] = _attention(generator, where, dtype, 1, 512)
    names["embedding_backward"] = torch.ops.aten.embedding_dense_backward
    names["attend"], names["w"] = functional.scaled_dot_product_attention, names["u"].detach().requires_grad_()
    names["rows"] = torch.randint(0, 1000, (4096,), generator=generator).to(where)
    names["places"] = torch.randint(0, 1024, (1024, 1024), generator=generator).to(where)
    names["mask"] = names["x"] < names["y"]
    names["ends"] = torch.tensor([60, 130, 190, 256], dtype=torch.int32, device=where)
    names["columns"] = torch.empty(1024, 256, device=where, dtype=dtype).t()
    names["c"] = torch.rand(MIB, generator=generator, dtype=torch.complex64).to(where)
    names["images_last"] = names["images"].to(memory_format=torch.channels_last)
    names["leaf"] = names["images"].detach().requires_grad_()
    names["largest"] = functional.max_pool2d(names["leaf"], 3, 2, 1)
    names["mean"] = functional.avg_pool2d(names["leaf"], 2)
    return {"torch": torch, "functional": functional, **names}


def _on_the_device_alone() -> contextlib.AbstractContextManager[Any]:
    """A kernel that is missing is an error: the CPU's would be compared with itself."""
    if "torch_backplane" not in sys.modules:
        return contextlib.nullcontext()
    from torch_backplane import fallback

    return fallback.budget(calls=0)


def _measure(statement: str, dtype: torch.dtype) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        ours, theirs = (_names(dtype, where) for where in (device, "cpu"))
        code = compile(statement, statement, "eval")
        with _on_the_device_alone():
            eval(code, ours)
        return ratio(statement, ours, theirs, after=wait, rounds=15, timer=time.process_time)

    return measure


def _row(name: str, statement: str, dtype: torch.dtype, budget: float | None) -> Row:
    title = f"compiled, {name}, {str(dtype).removeprefix('torch.')}"
    return Row(title, _measure(statement, dtype), budget=budget, configurations=(COMPILED,))


ROWS = [_row(*statement) for statement in STATEMENTS]
