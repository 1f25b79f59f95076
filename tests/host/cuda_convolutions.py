"""Convolutions on the device beside the CPU's, forward and backward, and whether the library in cuDNN's place was asked
for each: test_cuda_kernels.py runs it."""

import itertools
import os
from pathlib import Path

import torch
import torch.nn.functional as F

device = "mydevice"
log = Path(os.environ["FAKE_CUDNN_LOG"])
LIBRARY = os.environ["LIBRARY"] == "1"
torch.manual_seed(0)

LOOSE = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
    torch.float16: {"rtol": 4e-3, "atol": 4e-3},
}


def lines():
    """What it was asked for, a line for each convolution."""
    return log.read_text().splitlines() if log.exists() else []


def both(call, tensors, where, options):
    """The result and the gradients of all tensors."""
    leaves = [t.detach().to(where).requires_grad_() for t in tensors]
    result = call(*leaves, **options)
    gradient = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)
    result.backward(gradient.to(where))
    return [result, *(leaf.grad for leaf in leaves)]


def check(call, *tensors, parts="yxw", says="", **options):
    """One convolution on both. parts: what the library computes; the order of gradients is autograd's own."""
    before = len(lines())
    ours, theirs = both(call, tensors, device, options), both(call, tensors, "cpu", options)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.cpu(), b, **LOOSE.get(a.dtype, {}))
        assert a is not ours[0] or a.stride() == b.stride()
    new = lines()[before:]
    assert "".join(line[0] for line in new) == (parts if LIBRARY else ""), (new, parts, options)
    assert not LIBRARY or all(says in line for line in new), (new, says)


WORDS = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d), 3: (F.conv3d, F.conv_transpose3d)}
OPTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"dilation": 2, "padding": 2},
    {"groups": 2, "stride": 3},
    {"groups": 4, "padding": 1, "dilation": 2, "stride": 2},
]


def tensors(dims, groups, transposed, dtype=torch.float32):
    """Input, weight and bias; no two of the sizes are equal."""
    inner = {1: (11,), 2: (9, 10), 3: (6, 7, 8)}[dims]
    windows = {1: (3,), 2: (3, 2), 3: (2, 3, 1)}[dims]
    first, second = 8, 12
    weight = (first, second // groups) if transposed else (second, first // groups)
    return [torch.randn(size).to(dtype) for size in ((2, first, *inner), (*weight, *windows), (second,))]


for dims, transposed, options in itertools.product(WORDS, (False, True), OPTIONS):
    parts = "xyw" if transposed else "yxw"
    wide = f"dims {max(dims, 2)} groups {options.get('groups', 1)} algorithm 1"
    check(
        WORDS[dims][transposed], *tensors(dims, options.get("groups", 1), transposed), parts=parts, says=wide, **options
    )
for dtype, number in ((torch.bfloat16, 9), (torch.float16, 2)):
    for options in OPTIONS:
        given = tensors(2, options.get("groups", 1), False, dtype)
        check(F.conv2d, *given, says=f"type {number} dims 2", **options)
x, weight, bias = tensors(2, 1, False)
check(F.conv2d, x, weight)
check(F.conv2d, x[0], weight, bias)
check(F.conv2d, x, weight, bias, stride=(2, 3), padding=(1, 0), dilation=(1, 2))
check(F.conv2d, x, weight, bias, padding="same", dilation=2)
check(F.conv2d, x.to(memory_format=torch.channels_last), weight, bias)
check(F.conv2d, x, weight.to(memory_format=torch.channels_last), bias)
check(lambda x, w, b: F.conv2d(x.transpose(2, 3)[:, :, 1:], w, b), x, weight, bias)
check(F.conv_transpose2d, *tensors(2, 2, True), parts="xyw", groups=2, stride=3, output_padding=(1, 2))
check(F.conv2d, torch.randn(2, 8, 5, 6), torch.randn(16, 1, 3, 3), groups=8)
# Of the same sizes, and yet not the same.
check(F.conv2d, x, weight, bias, padding=(1, 0))
check(F.conv2d, x, weight, bias, padding=(2, 0), dilation=(2, 1))
# Each part alone, and what is known for a kind of convolution is found again.
frozen = [t.to(device) for t in (x, weight, bias)]
for i, part in enumerate("xw"):
    before = len(lines())
    leaves = [t.clone().requires_grad_(i == j) for j, t in enumerate(frozen)]
    F.conv2d(*leaves).sum().backward()
    assert [line[0] for line in lines()[before:]] == (["y", part] if LIBRARY else [])
# Those who are to be repeated take no algorithm that does not repeat.
torch.use_deterministic_algorithms(True)
check(F.conv2d, x, weight, bias, says="algorithm 0")
torch.use_deterministic_algorithms(False)
check(F.conv2d, x, weight, bias, says="algorithm 1")
# What the library does not have, or refuses when it is asked to run, is somebody else's.
check(F.conv2d, torch.randn(2, 10, 5, 6), torch.randn(5, 2, 3, 3), groups=5, parts="")
check(F.conv2d, x, weight, bias, padding=7, parts="")
check(F.conv2d, x, weight, bias, padding=7, parts="")
check(F.conv2d, x.double(), weight.double(), bias.double(), parts="")
check(F.conv_transpose2d, *tensors(2, 1, True), parts="", output_padding=1, dilation=2)
assert F.conv2d(torch.randn(0, 8, 5, 6, device=device), weight.to(device)).shape == (0, 12, 3, 5)
for wrong in ({"groups": 3}, {"stride": 0}, {"padding": -1}):
    try:
        F.conv2d(x.to(device), weight.to(device), **wrong)
    except RuntimeError:
        continue
    raise AssertionError(wrong)
print("all", len(lines()))
