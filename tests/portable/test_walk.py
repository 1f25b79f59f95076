"""Walks over the operands of pointwise operators: strips, short rows, tiles, broadcasting, many dimensions."""

import itertools
import math

import pytest
import torch

from portable.compare import each
from portable.pointwise import compare, tensor

# Dense down the columns, where a core walks strips of 8 of them.
COLUMNS = [
    lambda x, y, images: x.t().contiguous(),
    lambda x, y, images: x.t() + y,
    lambda x, y, images: torch.where(y > 0, x.t(), y),
    lambda x, y, images: x.t().contiguous().double(),
    lambda x, y, images: images.permute(0, 2, 3, 1).contiguous(),
    lambda x, y, images: images.permute(3, 1, 0, 2)[1:].contiguous(),
    lambda x, y, images: y.clone().t().copy_(x),
    lambda x, y, images: y.new_zeros(2 * y.shape[0], y.shape[1] + 3)[::2, 1:-2].copy_(x.t()),
]


@pytest.mark.parametrize("dtype", each([torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8]))
def test_operands_dense_down_the_columns(device, dtype):
    for shape in ((8, 8), (7, 9), (37, 19), (64, 8), (9, 65)):
        sizes = shape, shape[::-1], (2, 3, *shape)
        operands = [(torch.randn(size) * 9).to(dtype) for size in sizes]
        on_device = [t.to(device) for t in operands]
        for function in COLUMNS:
            compare(function(*on_device), function(*operands))


SHORT = [  # a shape, what is walked of it, and the shape of an operand that is broadcast
    ("taps of a filter", (40, 30, 3, 3), lambda x: x[:, :, ::2, ::2], (2, 1)),
    ("channels that become last", (2, 3, 33, 40), lambda x: x.permute(0, 2, 3, 1), (3,)),
    ("pairs", (5, 700, 2), lambda x: x[:, 1:, :1], (5, 1, 1)),
    ("rows of five in three dimensions", (9, 4, 7, 7), lambda x: x[1:, :, ::2, :5], (4, 1, 5)),
    ("more rows than a tile has elements", (2, 1100, 3), lambda x: x.transpose(0, 1)[:, :, :2], (2, 1)),
    ("rows of nine", (13, 11, 10), lambda x: x.transpose(0, 1)[:, :, :9], (9,)),
]


@pytest.mark.parametrize("dtype", each([torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8]))
@pytest.mark.parametrize(("shape", "view", "other"), [case[1:] for case in SHORT], ids=[case[0] for case in SHORT])
def test_rows_that_are_short(device, ran, dtype, shape, view, other):
    """An item that is a core walks them in strips along another dimension, or several at once."""
    x = (torch.arange(math.prod(shape)) % 89).view(shape).to(dtype)
    y = (torch.arange(math.prod(other)) % 5 + 1).view(other).to(dtype)
    mine = x.to(device)
    assert torch.equal(view(mine).contiguous().cpu(), view(x).contiguous())
    with ran("add.Tensor"):
        sums = view(mine) + y.to(device)
    assert torch.equal(sums.cpu(), view(x) + y)
    view(mine).mul_(y.to(device))
    view(x).mul_(y)
    assert torch.equal(mine.cpu(), x)


def test_sizes_around_a_tile(device):
    for count in (0, 1, 2, 1023, 1024, 1025, 4095, 4097, 100_003):
        x = torch.arange(count, dtype=torch.float32)
        assert torch.equal((x.to(device) * 3 + x.to(device)).cpu(), x * 3 + x)


def test_shapes_that_broadcast(device):
    shapes = [(4, 1, 3), (1, 5, 1), (5, 3), (3,), (), (4, 5, 3)]
    for a, b in itertools.product(shapes, shapes):
        x, y = tensor(a, torch.float32, 0), tensor(b, torch.float32, 1)
        compare(x.to(device) * y.to(device), x * y)


def test_more_dimensions_than_a_kernel_walks_are_computed_all_the_same(device):
    x = torch.randn([2] * 14)
    y = x.permute(*range(0, 14, 2), *range(1, 14, 2))
    assert torch.equal((x.to(device).permute(*range(0, 14, 2), *range(1, 14, 2)) + x.to(device)).cpu(), y + x)
