"""torch.compile for a target without float64 or some atomics: what needs them is calls of the device's operators."""

import re
from dataclasses import replace

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch.utils import _pytree as pytree

from portable.compare import each
from torch_backplane import compiler

pytestmark = pytest.mark.usefixtures("each_compiles")


def same(got, wanted, tolerance):
    got = pytree.tree_map(torch.Tensor.cpu, got)
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def changed_and_turned(x, i):
    x.add_(1)
    x[i % 6] += 2
    return x.t()


# Of float64 (6, 5), with six places below 8.
WITHOUT_FLOAT64 = {
    "computed and reduced": lambda x, i: ((x.sin() * 2).sum(1), x.softmax(1), x.max(1)[1]),
    "views": lambda x, i: (x.t().reshape(-1), x[:, ::2] + 1, x[None].expand(3, -1, -1).reshape(3, -1)),
    "converted": lambda x, i: ((x.float() + 1).relu(), (x.float() * 2).double(), i.double().mean()),
    "made": lambda x, i: (torch.full_like(x, 1.5) + 1, torch.linspace(0, 1, 5, device=x.device, dtype=x.dtype)),
    "summed into places": lambda x, i: x.new_zeros(8, 5).index_put((i,), x, accumulate=True),
    "written": changed_and_turned,
    "many, in place": lambda x, i: (torch._foreach_mul_([y := x * 2, z := x + 1], 1.5), y - z)[1],
    "many": lambda x, i: torch._foreach_add([x, x * 2], 1.0),
    "a number of the host": lambda x, i: x.float() * torch.tensor(0.5, dtype=torch.float64),
}


def target_without(monkeypatch, missing):
    here = compiler.target()
    changed = {key: getattr(here, key) & ~bits for key, bits in missing.items()}
    monkeypatch.setattr(compiler, "target", lambda *_: replace(here, **changed))


@pytest.mark.parametrize("case", WITHOUT_FLOAT64)
def test_float64_is_calls_where_the_target_has_none(case, device, monkeypatch):
    target_without(monkeypatch, {"dtypes": 1 << 9})
    function = WITHOUT_FLOAT64[case]
    theirs = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 0, 1, 5, 7, 7])
    ours = [one.to(device) for one in theirs]
    got, (code,) = run_and_get_code(torch.compile(function), *ours)
    same(got, function(*theirs), 1e-6)
    same(ours, list(theirs), 0)
    assert "f64" not in code


# Of a dtype, the bits of a target's atomics that a sum into places needs.
ATOMICS = {torch.int32: 1 << 0, torch.float32: 1 << 1, torch.float16: 1 << 2, torch.float64: 1 << 4}
SUMS = (
    lambda x, i, y: x.index_put((i,), y, accumulate=True),
    lambda x, i, y: x.index_add(0, i, y),
    lambda x, i, y: x.scatter_add(0, i[:, None].expand(6, 5), y),
    lambda x, i, y: x.clone().scatter_(0, i[:, None].expand(6, 5), y, reduce="add"),
)


@pytest.mark.parametrize("dtype", ATOMICS, ids=str)
def test_a_sum_into_places_is_a_call_where_the_target_has_no_atomic_for_it(dtype, device, monkeypatch):
    def sums(x, i, y):
        return tuple(function(x, i, y) for function in SUMS)

    theirs = torch.zeros(8, 5, dtype=dtype), torch.tensor([0, 0, 1, 5, 7, 7]), torch.arange(30).view(6, 5).to(dtype)
    for missing in (0, ATOMICS[dtype]):
        target_without(monkeypatch, {"atomics": missing})
        torch._dynamo.reset()
        got, (code,) = run_and_get_code(torch.compile(sums), *(one.to(device) for one in theirs))
        same(got, sums(*theirs), 1e-6)
        assert ("atomic_add" in code.lower()) == (missing == 0)


def other(x):
    return x.logical_not().to(x.dtype)


# Of (8, 5), with six places below 8: a sum into places, and what is made of it.
READ_AFTERWARDS = {
    "put": lambda x, i: (y := (x + x).index_put((i,), x[:6], accumulate=True), other(y)),
    "put unchecked": lambda x, i: (y := torch.ops.aten._unsafe_index_put(x + x, (i,), x[:6], True), other(y)),
    "added": lambda x, i: (y := (x + x).index_add(0, i, x[:6]), other(y)),
    "read before": lambda x, i: (other(y := x.amax(1)), z := y.index_put((i,), x[:6, 0], accumulate=True), other(z)),
}


@pytest.mark.parametrize("dtype", each([torch.bool, torch.float16, torch.bfloat16]))
@pytest.mark.parametrize("case", READ_AFTERWARDS)
def test_memory_that_a_call_writes_is_not_used_again(case, dtype, device, monkeypatch):
    """Of bools no target has a sum."""
    target_without(monkeypatch, {"atomics": ATOMICS[torch.float16]})
    function = READ_AFTERWARDS[case]
    theirs = torch.randint(0, 2, (8, 5)).to(dtype), torch.tensor([0, 0, 1, 5, 7, 7])
    got, (code,) = run_and_get_code(torch.compile(function), *(one.to(device) for one in theirs))
    same(got, function(*theirs), 0)
    assert re.search(r"aten\.index_(put_|add)\.default\(", code)


@pytest.mark.parametrize("dtype", [torch.uint32, torch.uint64], ids=str)
@pytest.mark.parametrize("name", ["index_put", "scatter_add"])
def test_a_sum_into_places_of_unsigned_numbers_is_eagers_or_its_error(name, dtype, device):
    x, i = torch.arange(8).to(dtype).to(device), torch.tensor([0, 0, 1], device=device)

    def summed(x, i):
        return x.index_put((i,), x[:3], accumulate=True) if name == "index_put" else x.scatter_add(0, i, x)

    try:
        wanted = summed(x, i)
    except NotImplementedError as error:  # scatter_add up to torch 2.13
        with pytest.raises(NotImplementedError, match=re.escape(str(error).partition("\n")[0])):
            torch.compile(summed)(x, i)
    else:
        same(torch.compile(summed)(x, i), wanted.cpu(), 0)
