"""Products of matrices on the device beside the CPU's, and whether the library in cuBLASLt's place was asked for each:
test_cuda_kernels.py runs it."""

import itertools
import os
from pathlib import Path

import torch

device = "mydevice"
log = Path(os.environ["FAKE_CUBLASLT_LOG"])
LIBRARY = os.environ["LIBRARY"] == "1"
torch.manual_seed(0)


def lines():
    """What it was asked for, a line for each product."""
    return log.read_text().splitlines() if log.exists() else []


def check(call, *tensors, taken=1, tolerance=None, says="", meant=None):
    """One call on both; the tensors keep their strides. meant: the CPU's, where it would read what it wrote."""
    if meant and not LIBRARY:  # the fallback is the CPU
        return
    before = len(lines())
    ours = call(*(on_device(t) for t in tensors))
    theirs = (meant or call)(*(t.clone() if t.is_contiguous() else t for t in tensors))
    torch.testing.assert_close(ours.cpu(), theirs, **(tolerance or {}))
    new = lines()[before:]
    assert len(new) == (taken if LIBRARY else 0), (new, taken)
    if LIBRARY and says:
        assert says in new[-1], new


def on_device(t):
    """A copy there, with the same strides."""
    base = t if t._base is None else t._base
    return base.to(device).as_strided(t.size(), t.stride(), t.storage_offset())


def matrices(rows, columns, dtype):
    """By rows, by columns, and parts of larger ones of both kinds."""
    whole = torch.randn(rows + 3, columns + 5).to(dtype)
    yield torch.randn(rows, columns).to(dtype)
    yield torch.randn(columns, rows).to(dtype).t()
    yield whole[2 : rows + 2, 1 : columns + 1]
    yield torch.randn(columns + 1, rows + 2).to(dtype)[1:, 1 : rows + 1].t()


LOOSE = {
    torch.float32: {},
    torch.float64: {},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
}
for dtype, tolerance in LOOSE.items():
    for a, b in itertools.product(matrices(5, 7, dtype), matrices(7, 3, dtype)):
        check(torch.mm, a, b, tolerance=tolerance)
for rows, depth, columns in ((1, 1, 1), (1, 6, 4), (5, 1, 2), (5, 6, 1), (64, 33, 70)):
    for a, b in itertools.product(matrices(rows, depth, torch.float32), matrices(depth, columns, torch.float32)):
        check(torch.mm, a, b)
a, b = torch.randn(5, 7), torch.randn(7, 3)
check(torch.nn.functional.linear, a, b.t().contiguous(), torch.randn(3), says="epilogue 4")
check(lambda s, x, y: torch.addmm(s, x, y), torch.randn(3), a, b, says="epilogue 4")
check(lambda s, x, y: torch.addmm(s, x, y), torch.randn(1, 3), a, b, says="epilogue 1")
check(lambda s, x, y: torch.addmm(s, x, y, beta=0.5, alpha=-2), torch.randn(5, 3), a, b)
check(lambda s, x, y: torch.addmm(s, x, y, beta=0), torch.full((5, 3), torch.nan), a, b)
check(lambda s, x, y: s.addmm_(x, y, alpha=3), torch.randn(5, 3), a, b)
square = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4)
check(lambda s, x, y: torch.addmm(s, x, y, out=x), *square, meant=torch.addmm)
check(lambda s, x, y: torch.addmm(s, x, y, out=s.t()), *square, meant=torch.addmm)
check(lambda s, x, y: torch.mm(x, y, out=s.t()), *square)
check(lambda x: torch.mm(x, x, out=x), square[0], meant=lambda x: x @ x)
batches = torch.randn(6, 5, 7), torch.randn(6, 7, 3)
check(torch.bmm, *batches)
check(lambda x, y: torch.bmm(x[::2], y[::2]), *batches)
check(lambda x, y: torch.bmm(x[:1].expand(6, 5, 7), y), *batches)
check(lambda x, y: torch.bmm(y.mT, x.mT), *batches)
check(lambda s, x, y: torch.baddbmm(s, x, y, beta=2), torch.randn(5, 3), *batches)
check(lambda x, y: torch.matmul(x.view(2, 3, 5, 7), y.view(2, 3, 7, 3)), *batches)
# What the library cannot read, and what is nothing, is somebody else's.
check(lambda x, y: torch.mm(x[:, ::2], y[::2]), a, b, taken=0)
check(lambda x, y: torch.mm(x[:0], y), a, b, taken=0)
check(lambda x, y: torch.mm(x[:, :0], y[:0]), a, b, taken=0)
check(torch.mm, torch.randint(9, (3, 4)), torch.randint(9, (4, 2)), taken=0)
# Backward, as a model uses it.
layer = torch.nn.Linear(7, 3)
other = torch.nn.Linear(7, 3).to(device)
other.load_state_dict(layer.state_dict())
layer(a).sum().backward(), other(a.to(device)).sum().backward()
torch.testing.assert_close(other.weight.grad.cpu(), layer.weight.grad)
print("all", len(lines()))
