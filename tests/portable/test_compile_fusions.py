"""What Inductor's scheduler joins into one kernel on the device: values, gradients, and how many kernels and calls.

Counted elsewhere: what follows a product under ``max_autotune`` (test_compile_max_autotune.py), scans with the kernels
around them (test_compile_scans.py), dropout with what reads it (test_compile_random.py), and what is between
the products of ``flex_attention`` (test_compile_attention.py).
"""

import dataclasses
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch._inductor.utils import run_and_get_code

from portable.compare import each, real
from torch_backplane import compiler, fallback
from torch_backplane.inductor import scheduling

ROWS = 64, 129
pytestmark = pytest.mark.usefixtures("each_compiles")


def places(*shape, below):
    return torch.randint(0, below, shape)


def rows():
    return [real(*ROWS)]


def two():
    return [real(*ROWS), real(*ROWS)]


class Case(NamedTuple):
    """``launches``: of kernels by each graph; with two graphs, forward and backward, gradients are compared, too."""

    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    make: Callable[[], list[torch.Tensor]]
    launches: tuple[int, ...]
    calls: tuple[str, ...] = ()  # of operators, by all graphs
    tolerance: float = 1e-4


def read_twice(x):
    total = x.abs().sum(1, keepdim=True)
    return total.log(), total * 2, x / total


CASES = {
    # Elements.
    "a chain": Case(lambda x: ((x * 2 + 1).tanh() * x).sigmoid(), rows, (1, 1)),
    "siblings": Case(lambda x: (x.sin(), x.cos() * 2, x.abs() + 1), rows, (1, 1)),
    "a row and a column": Case(
        lambda x, b, c: ((x + b.exp()) * c).relu(), lambda: [real(*ROWS), real(129), real(64, 1)], (1,)
    ),
    "a choice": Case(
        lambda x, m: torch.where(m, x.exp(), x * 2).masked_fill(x > 1, 0.5) + 1,
        lambda: [real(*ROWS), real(*ROWS) > 0],
        (1, 1),
    ),
    "results of four dtypes": Case(lambda x: (x.exp() * 2, x > 0, (x * 9).long(), x.half()), rows, (1,)),
    "halves in and out": Case(
        lambda x: (x.float().exp() * 2).log1p().half(), lambda: [real(*ROWS, dtype=torch.float16)], (1, 1)
    ),
    "comparisons of whole numbers": Case(
        lambda i, j: ((i > j) & (i != 3) | ~(j <= 0), torch.where(i == j, i, -j), (i % 3 == 0).long() + j),
        lambda: [places(*ROWS, below=9), places(*ROWS, below=9) - 4],
        (1,),
    ),
    "a number on the CPU": Case(
        lambda x, a: ((x * a).tanh() + a).sum(1), lambda: [real(*ROWS), torch.tensor(0.5)], (1,)
    ),
    # Views.
    "permuted": Case(lambda x: x.permute(2, 0, 1).contiguous().sin() + 1, lambda: [real(5, 6, 7)], (1, 1)),
    "expanded": Case(lambda x: x[:, None].expand(64, 3, 129).sin() + 1, rows, (1, 1)),
    "sliced": Case(lambda x: x[2:, ::3] * 2 + x[:-2, ::3], rows, (1,)),
    "flipped and rolled": Case(lambda x: (x + 1).flip(1).roll((3, 5), (0, 1)).tanh(), rows, (1, 1)),
    "reshaped": Case(lambda x: (x * 2).view(129, 64).t().reshape(-1) + 1, rows, (1, 1)),
    # Loops that are longer than what they read.
    "repeated": Case(lambda x: (y := x * 2, y.repeat(3) + 1), lambda: [real(1000)], (2, 1)),
    "repeated after a scan": Case(lambda x: x.cumsum(0).repeat(3) + 1, lambda: [real(64)], (2, 2)),
    "expanded, then flat": Case(lambda x: (y := x * 2, y.expand(3, -1).reshape(-1) + 1), lambda: [real(64)], (2, 1)),
    "expanded and turned, then flat": Case(
        lambda x: (y := x * 2, y.expand(3, -1).t().reshape(-1) + 1), lambda: [real(8)], (2, 1)
    ),
    "two layouts, by tiles": Case(lambda x, y: (x.t() * 2 + y).tanh(), lambda: [real(129, 64), real(*ROWS)], (1,)),
    "joined": Case(lambda x, y: torch.cat([x.sin(), y * 2], 1).relu() + 1, lambda: [real(*ROWS), real(64, 7)], (1,)),
    "joined and summed": Case(
        lambda x, y: torch.cat([x.sin(), y * 2], 1).sum(1), lambda: [real(*ROWS), real(64, 7)], (1,)
    ),
    "stacked": Case(lambda x, y: torch.stack([x + 1, y * 2], 1).tanh(), two, (1,)),
    "padded": Case(lambda x: F.pad(x.exp(), (1, 2, 3, 0)).sin() * 2, rows, (1,)),
    "half of a row with the other": Case(lambda x: F.silu(x[:, :64]) * x[:, 64:], lambda: [real(64, 128)], (1, 1)),
    # Reductions.
    "a sum of rows": Case(lambda x: (x.tanh() * 2 + 1).sum(1), rows, (1, 1)),
    "a sum of columns, and on": Case(lambda x: ((x.tanh() * 2).sum(0) * 0.1).tanh(), rows, (1, 1)),
    "softmax": Case(lambda x: (x * 2).softmax(1) + 1, rows, (1, 1)),
    "log softmax of long rows": Case(lambda x: x.log_softmax(1), lambda: [real(4, 5000)], (1, 1)),
    "layer norm": Case(
        lambda x, w, b: F.gelu(F.layer_norm(x + 1, (129,), w, b)), lambda: [real(*ROWS), real(129), real(129)], (1, 2)
    ),
    "mean and maximum": Case(lambda x: (x.mean(1), x.amax(1)), rows, (1,)),
    "variance and mean": Case(lambda x: torch.var_mean(x, 1), rows, (1, 1)),
    "all kinds of one row": Case(
        lambda x: (x.argmax(1), x.argmin(1), x.max(1)[0], (x > 0).any(1), (x > -9).all(1), x.tanh().prod(1), x.amin(1)),
        rows,
        (1,),
    ),
    "read by several": Case(read_twice, rows, (1, 1)),
    "two in sequence": Case(lambda x: (x - x.mean(1, keepdim=True)).abs().amax(1), rows, (1,)),
    "of columns, then by each row": Case(lambda x: x.softmax(0) * 2, rows, (2, 2)),
    "of rows and of columns": Case(lambda x: (x.sum(0), x.sum(1)), rows, (2,)),
    "pooled": Case(lambda x: F.max_pool2d(x.sin(), 2).relu() * 2, lambda: [real(2, 3, 8, 8)], (1,)),
    # Places.
    "gathered": Case(
        lambda x, i: (x.exp().gather(1, i) + 1).tanh(), lambda: [real(*ROWS), places(64, 9, below=129)], (1,)
    ),
    "indexed, from the end, too": Case(
        lambda x, i: (x[i] * 2 + 1).relu().sum(1), lambda: [real(*ROWS), torch.tensor([3, -1, 5])], (1,)
    ),
    "embedded and normalized": Case(
        lambda w, i, b: F.layer_norm(F.embedding(i, w) * 3 + b, (16,)),
        lambda: [real(50, 16), places(4, 7, below=50), real(16)],
        (1,),
    ),
    "gathered where the largest is": Case(lambda x, y: y.gather(1, x.argmax(1, keepdim=True)) * 2, two, (1,)),
    "loss of a log softmax": Case(
        lambda x, i: F.nll_loss((x * 2).log_softmax(1), i, reduction="none") + 1,
        lambda: [real(*ROWS), places(64, below=129)],
        (1, 1),
    ),
    # Begun, summed into, read.
    "sums into places": Case(
        lambda x, i: (torch.zeros_like(x).scatter_add(1, i, x * 2) + 1).relu(),
        lambda: [real(*ROWS), places(*ROWS, below=129)],
        (3, 1),
    ),
    "sums into rows": Case(
        lambda x, y, i: x.index_add(0, i, y.sin()) * 2, lambda: [real(*ROWS), real(9, 129), places(9, below=64)], (3,)
    ),
    # Written.
    "added to an argument": Case(lambda x, y: x.add_(y * 2).sin(), two, (1,)),
    "copied to an argument": Case(lambda x, y: x.copy_(y.sigmoid()) + 1, two, (1,)),
    "a part is written": Case(
        lambda x, y: x.sin().slice_scatter(y * 2, 1, 0, 9) + 1, lambda: [real(*ROWS), real(64, 9)], (1,)
    ),
    # Operators among kernels: what precedes one is a kernel, and what follows it.
    "around a sort": Case(lambda x: torch.add(*(x + 1).sin().sort(1)).relu(), rows, (2,), ("sort.stable",)),
    "around products": Case(
        lambda c, a, b: torch.bmm(torch.addmm(c, a, b).relu()[None], b[None]) + 1,
        lambda: [real(40), real(40, 40), real(40, 40) * 0.1],
        (2,),
        ("addmm", "bmm"),
    ),
    "around a convolution": Case(
        lambda x, w, b: F.conv2d(x * 2, w, b, padding=1).relu() + 1,
        lambda: [real(2, 3, 9, 9), real(4, 3, 3, 3), real(4)],
        (2, 2),
        ("convolution.default", "convolution_backward.default"),
    ),
    "a convolution of two orders": Case(  # the weight stays in its order
        lambda x, w: (F.conv2d(x, w, padding=1) + x).relu(),
        lambda: [real(2, 8, 9, 9).to(memory_format=torch.channels_last), real(8, 8, 3, 3)],
        (1,),
        ("convolution.default",),
    ),
    "around attention": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q * 2, k + 1, v).sin() + 1,
        lambda: [real(2, 2, 16, 8) for _ in range(3)],
        (3,),
        ("_scaled_dot_product_fused_attention_overrideable.default",),
    ),
}


def with_gradients(function, *arguments):
    """The results, and what each argument of floats gets of fixed gradients of the results."""
    given = [one.requires_grad_(one.is_floating_point()) for one in arguments]
    results = function(*given)
    tracked = [one for one in ([results] if isinstance(results, torch.Tensor) else results) if one.requires_grad]
    weights = [torch.arange(one.numel()).cos().view(one.shape).to(one) for one in tracked]
    gradients = torch.autograd.grad(tracked, [one for one in given if one.requires_grad], weights)
    return *(one.detach() for one in tracked), *gradients


def launches_and_calls(code: str, device: torch.device) -> tuple[int, list[str]]:
    """What a module that Inductor wrote does, in the program's order."""
    lines = [line for line in code.split("async_compile.wait(")[-1].splitlines() if not line.lstrip().startswith("#")]
    launches = [line for line in lines if re.match(rf"\s+{device.type}_\w+\(", line)]
    calls = [
        found[1] for line in lines if (found := re.search(r"(?:torch\.ops\.aten|extern_kernels)\.([\w.]+)\(", line))
    ]
    return len(launches), calls


def check(case: Case, device: torch.device) -> list[str]:
    """The modules that Inductor wrote; values, written arguments and counts are those of the case."""
    theirs = case.make()
    ours = [one.clone() if one.dim() == 0 else one.to(device) for one in theirs]  # a number stays on the CPU
    function = torch.compile(case.function, fullgraph=True)
    with fallback.budget(calls=0):
        if len(case.launches) == 1:
            got, codes = run_and_get_code(function, *ours)
        else:
            got, codes = run_and_get_code(lambda *arguments: with_gradients(function, *arguments), *ours)
    wanted = case.function(*theirs) if len(case.launches) == 1 else with_gradients(case.function, *theirs)
    got, wanted = ([one] if isinstance(one, torch.Tensor) else list(one) for one in (got, wanted))
    torch.testing.assert_close(
        [one.detach().cpu() for one in (*got, *ours)],
        [one.detach() for one in (*wanted, *theirs)],
        rtol=case.tolerance,
        atol=case.tolerance,
    )
    found = [launches_and_calls(code, device) for code in codes]
    assert tuple(launches for launches, _ in found) == case.launches
    assert tuple(call for _, calls in found for call in calls) == case.calls
    return codes


@pytest.mark.parametrize("name", CASES)
def test_F14_what_is_joined(name, device):
    check(CASES[name], device)


def test_a_kernel_writes_where_it_read(device):
    case = Case(
        lambda x, y: ((x @ y).relu() @ y).sin(),
        lambda: [real(40, 40), real(40, 40)],
        (2,),
        ("mm", "mm"),
        tolerance=1e-3,
    )
    (code,) = check(case, device)
    assert len(re.findall(r"BP_KERNEL\(generated, 1, Generated, BP_GLOBAL f32\* BP_RESTRICT in_out_ptr0\)", code)) == 2


SIZED = {
    "elements": lambda x: (x * 2 + 1).tanh(),
    "sums": lambda x: x.tanh().sum(1) * 2,
    "softmax": lambda x: (x + 1).softmax(1),
}


@pytest.mark.parametrize("name", SIZED)
def test_F14_one_kernel_takes_all_sizes(name, device):
    function = torch.compile(SIZED[name], fullgraph=True, dynamic=True)
    _, (code,) = run_and_get_code(function, real(5, 7).to(device))
    assert launches_and_calls(code, device) == (1, [])
    with torch.compiler.set_stance("fail_on_recompile"):
        for shape in ((5, 7), (33, 129), (64, 1000)):
            x = real(*shape)
            torch.testing.assert_close(function(x.to(device)).cpu(), SIZED[name](x), rtol=1e-4, atol=1e-4)


SPLIT = {
    "sum": lambda x: (x * 2).mean() + 1,
    "maximum": lambda x: x.abs().amax(),
    "variance": lambda x: x.var(),
}


@pytest.mark.parametrize("name", SPLIT)
def test_a_large_reduction_is_split(name, device):
    """All of a large tensor: a kernel for its parts, and one for the whole; a device of few cores takes one."""
    kernels = 2 if scheduling.splits_reductions(device) else 1
    check(Case(SPLIT[name], lambda: [real(1000, 1000)], (kernels,)), device)


def test_a_device_of_many_cores_or_of_groups_of_items_shares_a_reduction(device, monkeypatch):
    """By the target that each reports."""
    target = compiler.target(0)
    for items, many_cores, shares in ((1, 1 << 30, False), (64, 1 << 30, True), (1, 1, True)):
        monkeypatch.setattr(
            compiler, "target", lambda index, items=items: dataclasses.replace(target, group_size=items)
        )
        monkeypatch.setattr(scheduling, "MANY_CORES", many_cores)
        assert scheduling.splits_reductions(device) == shares
    monkeypatch.setattr(compiler, "target", lambda index: target)
    check(Case(SPLIT["sum"], lambda: [real(1000, 1000)], (2,)), device)


INDEXED = {
    "index": lambda t, a: t[(a > 0).long()] * 2,
    "int32": lambda t, a: t[(a > 0).int()],
    "index_select": lambda t, a: t.index_select(0, (a != 0).long()),
    "take": lambda t, a: t.take((a > 0).long() * 2 + 1),
    "gather": lambda t, a: torch.gather(t, 0, (a <= 0).long()),
    "embedding": lambda t, a: F.embedding((a > 0).long(), t.view(-1, 1)),
    "argmax": lambda t, a: t[torch.stack([a, -a], 1).argmax(1)],
    "known to be there": lambda t, a: t[:2][(a > 0).long().clamp(0, 1)],
    "put": lambda t, a: t.index_put(((a > 0).long(),), a, accumulate=True),
}


@pytest.mark.parametrize("name", each(INDEXED, "index", "gather", "argmax", "put"))
def test_a_comparison_is_a_place(name, device):
    """GCC 12's vectoriser reads at -1 where the comparison is 1, unless it cannot see that the place is one."""
    function = torch.compile(INDEXED[name], fullgraph=True, dynamic=True)
    for size in (8, 64, 1000):
        table, a = torch.arange(1.0, 33), torch.arange(size) % 3 - 1.0
        torch.testing.assert_close(function(table.to(device), a.to(device)).cpu(), INDEXED[name](table, a))


def test_comparisons_are_places_of_one_kernel(device):
    """The check of a place of one element shows GCC that its hidden zero is 0, and that of no other place."""

    def places(x, mask, at):
        return mask[torch.where(at > 1, 0, 0)], x.take(mask.long())

    x, mask, at = torch.arange(64.0, 192).view(1, 2, 64), torch.arange(128).view(1, 2, 64) % 3 == 0, torch.tensor([3])
    found = torch.compile(places, dynamic=False)(x.to(device), mask.to(device), at.to(device))
    torch.testing.assert_close([one.cpu() for one in found], list(places(x, mask, at)))


def test_a_sum_into_the_only_place(device):
    """The place is known to be 0 for the reader and for the sum, and lanes of one kernel would read what others add."""

    def double(x, at):
        x = x.prod(0, keepdim=True)
        return x.index_add(0, at, x.index_select(0, at))

    x, at = torch.linspace(0.9, 1.1, 33), torch.zeros(3, dtype=torch.int64)
    found = torch.compile(double, fullgraph=True)(x.to(device), at.to(device))
    torch.testing.assert_close(found.cpu(), double(x, at))


def set_places(v):
    w = v.clone()
    w[v.clamp(0, 7)] = 1
    return w


OVERWRITTEN = {
    "set": set_places,
    "put": lambda v: v.clone().index_put_((v.clamp(0, 7),), v * 0 + 1),
    "summed": lambda v: v.clone().index_put_((v.clamp(0, 7),), v * 2, accumulate=True),
    "scattered": lambda v: v.clone().scatter_(0, v.clamp(0, 7), 1),
    "added": lambda v: v.clone().scatter_add_(0, v.clamp(0, 7), v * 2),
    "largest": lambda v: v.clone().scatter_reduce_(0, v.clamp(0, 7), v * 2, "amax"),
    "index_add": lambda v: v.clone().index_add_(0, v.clamp(0, 7), v * 2),
    "reversed": lambda v: v.index_copy(0, torch.arange(99, -1, -1, device=v.device), v),
}


@pytest.mark.parametrize("name", each(OVERWRITTEN, "set", "added", "largest", "reversed"))
def test_places_are_computed_before_the_memory_that_they_come_from_is_written(name, device):
    """One kernel for both reads what it has written."""
    x = torch.arange(100, 200)
    x[:2] = torch.tensor([9, 2])

    def run(x):
        return OVERWRITTEN[name](x.cumsum(0))

    assert torch.equal(torch.compile(run, fullgraph=True)(x.to(device)).cpu(), run(x))
