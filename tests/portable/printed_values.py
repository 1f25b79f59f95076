"""Operators and compiled functions on the device and on the CPU, for a compiler that is changed (test_compilers.py)."""

import mydevice  # noqa: F401
import torch
import torch.nn.functional as F

from torch_backplane import compiler

DEVICE = "mydevice"
TOLERANCE = {torch.float64: 1e-12, torch.bfloat16: 1e-2}


def same(function, *arguments):
    want = function(*arguments)
    got = function(*(x.to(DEVICE) for x in arguments)).cpu()
    tolerance = TOLERANCE.get(want.dtype, 1e-5)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def main():
    torch.manual_seed(0)
    x, y, numbers = torch.randn(64, 65), torch.randn(65, 48), torch.randint(-50, 50, (7, 33))
    half, double = x.to(torch.bfloat16), torch.randn(40, 9, dtype=torch.float64)
    places = torch.randint(0, 65, (64, 3))
    same(lambda x: x * 2 + x.T.contiguous().T, x)
    same(F.gelu, x)
    same(lambda x: x.sum(-1), x)
    same(torch.mm, x, y)
    same(lambda x: (x * 3).softmax(-1), half)
    same(lambda x: x.sort(1)[0], x)
    same(lambda x: x.topk(5)[1], x)
    same(lambda x: x.argmax(1), x)
    same(lambda x: x.cumsum(1), x)
    same(lambda x: x // 7 + x % 5, numbers)
    same(lambda x: x.exp().log1p().sin().pow(2), double)
    same(lambda x: F.layer_norm(x, (65,)), x)
    same(lambda x, w: F.conv2d(x, w), x.reshape(1, 1, 64, 65), torch.randn(2, 1, 3, 3))
    same(lambda x, places: x.gather(1, places), x, places)
    same(lambda x: torch.complex(x, x).exp(), x)
    same(lambda x: x.nonzero(), numbers)
    same(torch.compile(lambda x, places: (x.gather(1, places) * 2).softmax(0) + x.mean(1, keepdim=True)), x, places)
    assert compiler.counts().failed == 0
    assert compiler.counts().compiled > 20


main()
