"""Random numbers of a graph, equal to those of eager mode: from the same numbers of the device's generator.

torch's own pass draws a seed for each random tensor, so that a compiled program has other numbers than eager mode. Here
a graph takes the numbers of the generator's sequence that eager's operators would take, in their order, and a kernel
computes element i from the numbers at its place, as the device's own kernels do (kernels/portable/random/random.cpp).
Other random operators are calls; with ``config.fallback_random`` all of them are. If eager's operator falls back to
the CPU, its numbers differ.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch._functorch.compile_utils import rand_ops
from torch._inductor import decomposition, ir, lowering
from torch._inductor.fx_passes import replace_random
from torch._inductor.fx_passes.control_dependencies import preserve_node_ordering
from torch._inductor.pattern_matcher import CallFunctionVarArgs, Match, register_graph_pattern
from torch._inductor.virtualized import ops
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.utils._ordered_set import OrderedSet

from torch_backplane import _backend, compiler
from torch_backplane.inductor.fallbacks import has_float64

aten = torch.ops.aten

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Up to this, a dtype represents all whole numbers; also the limits of eager's kernels.
_MOST = {torch.bool: 1, torch.float16: 1 << 11, torch.bfloat16: 1 << 8, torch.float32: 1 << 24, torch.float64: 1 << 53}
_MOST |= {one: torch.iinfo(one).max for one in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)}
# From this on, a number in [0, 1) would be rounded to 1, and becomes 0.
_ROUNDED_UP = {torch.float16: 1 - 2.0**-12, torch.bfloat16: 1 - 2.0**-9}

_library = torch.library.Library("backplane", "FRAGMENT")
_library.define(
    "random_elements(Tensor numbers, SymInt first, SymInt[] size, str kind, SymInt[] bounds, int each, "
    "ScalarType dtype) -> Tensor"
)
_library.impl(
    "random_elements",
    lambda numbers, first, size, kind, bounds, each, dtype: numbers.new_empty(size, dtype=dtype),
    "Meta",
)
torch.library.register_fake(
    "backplane::take_numbers",
    lambda count, device: torch.empty(2, dtype=torch.int64, device=torch.device(_backend.device, device)),
)

take_numbers = torch.ops.backplane.take_numbers.default
random_elements = torch.ops.backplane.random_elements.default


def _each(kind: str, bounds: Sequence[Any], dtype: torch.dtype) -> int:
    """From how many 32-bit numbers an element is computed."""
    if kind == "integers":
        count = bounds[1] - bounds[0]
        return 1 if guard_or_false(count < 1 << 28) or guard_or_false(count == 1 << 32) else 2
    return 2 if dtype == torch.float64 and kind != "below" else 1


def _random(
    size: Sequence[Any], device: torch.device, dtype: torch.dtype, kind: str, bounds: Sequence[Any] = ()
) -> torch.Tensor:
    """The replacement of an operator.

    ``kind``: uniform in [0, 1); normal; integers within ``bounds``; or below: whether a 32-bit number is below the only
    one of ``bounds``.
    """
    each = _each(kind, bounds, dtype)
    count = (math.prod(size) * each + 3) // 4 * 4  # a generator advances in blocks of four
    made: torch.Tensor = random_elements(take_numbers(count, device.index), 0, size, kind, bounds, each, dtype)
    return made


# ---- in the graph


def _fake(match: Match) -> torch.Tensor:
    value = match.output_node().meta["val"]
    fake: torch.Tensor = value[0] if isinstance(value, (tuple, list)) else value
    return fake


def _is_ours(match: Match) -> bool:
    fake, generator = _fake(match), match.output_node().kwargs.get("generator")
    if fake.device.type != _backend.device or generator is not None or compiler.why_none():
        return False
    return fake.dtype != torch.float64 or has_float64(fake.device)


def _replace(match: Match, by: Callable[..., Any], arguments: Sequence[Any]) -> None:
    graph = match.graph
    match.replace_by_example(by, arguments)
    for node in graph.find_nodes(op="call_function", target=take_numbers):
        node.meta.pop("recompute", None)  # a checkpoint's backward recomputes the elements from the same numbers


def _put(*operators: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(replace: Callable[..., None]) -> Callable[..., None]:
        for operator in operators:
            pattern = CallFunctionVarArgs(operator)
            passes = replace_random.patterns
            register_graph_pattern(pattern, extra_check=_is_ours, pass_dict=passes, prepend=True)(replace)
        return replace

    return decorate


def _register_patterns() -> None:
    def floats(kind: str, match: Match, size: Any, **_: Any) -> None:
        fake = _fake(match)
        if fake.dtype in FLOATS:
            _replace(match, lambda size: _random(size, fake.device, fake.dtype, kind), [size])

    for packet, kind in ((aten.rand, "uniform"), (aten.randn, "normal")):
        _put(packet.default, packet.generator)(functools.partial(floats, kind))

    @_put(aten.randint.low)
    def randint(match: Match, low: Any, high: Any, size: Any, **_: Any) -> None:
        fake = _fake(match)
        most = _MOST.get(fake.dtype)
        if most is None:
            return
        least = -most if fake.dtype.is_floating_point else 0 if fake.dtype in (torch.bool, torch.uint8) else -most - 1
        if isinstance(low, int) and isinstance(high, int) and not least <= low < high <= most + 1:
            return  # eager raises

        def replacement(low: Any, high: Any, size: Any) -> torch.Tensor:
            return _random(size, fake.device, fake.dtype, "integers", (low, high))

        _replace(match, replacement, [low, high, size])

    @_put(aten.bernoulli.p)
    def bernoulli(match: Match, x: Any, p: Any = 0.5, **_: Any) -> None:
        fake = _fake(match)
        if isinstance(p, (int, float)) and 0 <= p <= 1:
            bound = int(math.ldexp(p, 32))
            _replace(match, lambda x: _random(x.shape, x.device, fake.dtype, "below", (bound,)), [x])

    @_put(aten.native_dropout.default)
    def dropout(match: Match, x: Any, p: Any, train: Any) -> None:
        if train is False or not isinstance(p, (int, float)) or not 0 <= p <= 1 or _fake(match).dtype not in FLOATS:
            return

        def replacement(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            kept = _random(x.shape, x.device, torch.bool, "below", (int(math.ldexp(1 - p, 32)),))
            computed = torch.float64 if x.dtype == torch.float64 else torch.float32
            scale = torch.where(kept, 0.0 if p == 1 else 1 / (1 - p), torch.zeros((), dtype=computed, device=x.device))
            return (x.to(computed) * scale).to(x.dtype), kept

        _replace(match, replacement, [x])


def take_at_once(gm: torch.fx.GraphModule) -> None:
    """Let consecutive random tensors take their numbers by one call and one launch."""
    first: torch.fx.Node | None = None
    changed = False
    for node in list(gm.graph.nodes):
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded not in tags:
            continue
        users = list(node.users)
        fixed = node.target is take_numbers and isinstance(node.args[0], int)
        if not fixed or any(user.target is not random_elements for user in users):
            first = None  # of unknown size, kept for a backward, or numbers of another operator
        elif first is None or first.args[1] != node.args[1]:
            first = node
        else:
            taken, device = first.args
            for user in users:
                user.args = (first, taken + user.args[1], *user.args[2:])
            first.args = (taken + node.args[0], device)
            gm.graph.erase_node(node)
            changed = True
    if changed:
        gm.recompile()


def keep_order(gm: torch.fx.GraphModule) -> None:
    """Keep the program's order of operators that draw from the device's generators, of kernels and of calls.

    Inductor knows no dependence between them, and orders them by memory use.
    """
    drawing = [
        node
        for node in gm.graph.nodes
        if node.op == "call_function"
        and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        and any(one.device.type == _backend.device for one in _tensors(node.meta.get("val")))
    ]
    if len(drawing) > 1:
        preserve_node_ordering(gm.graph, {two: OrderedSet([one]) for one, two in pairwise(drawing)})
        gm.recompile()


def _tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in torch.utils._pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]


# ---- in kernels


def _uniform64(seed: Any, place: Any) -> Any:
    """A float64 in [0, 1) from 53 bits of two numbers."""
    bits = ops.randint64(seed, place, ops.constant(0, torch.int64), ops.constant(0, torch.int64))
    bits = ops.bitwise_and(
        ops.bitwise_right_shift(bits, ops.constant(11, torch.int64)), ops.constant(2**53 - 1, torch.int64)
    )
    return ops.mul(ops.to_dtype(bits, torch.float64), ops.constant(2.0**-53, torch.float64))


def _normal64(seed: Any, block: Any, is_odd: Any) -> Any:
    one, two = (ops.constant(value, torch.float64) for value in (1.0, -2.0))
    radius = ops.sqrt(ops.mul(two, ops.log(ops.sub(one, _uniform64(seed, block)))))
    turn = _uniform64(seed, ops.add(block, ops.constant(2, torch.int64)))
    turn = ops.mul(ops.constant(2 * math.pi, torch.float64), turn)
    return ops.mul(radius, ops.where(is_odd, ops.sin(turn), ops.cos(turn)))


def _lower(numbers: Any, first: Any, size: Any, kind: str, bounds: Sequence[Any], each: int, dtype: torch.dtype) -> Any:
    size, device = list(size), numbers.get_device()
    load = numbers.make_loader()
    at = ir.FixedLayout(device, dtype, size, ir.FlexibleLayout.contiguous_strides(size)).make_indexer()

    def element(index: Sequence[Any]) -> Any:
        seed, begin = load([0]), load([1])
        place = ops.add(begin, ops.index_expr(first + each * at(index), torch.int64))
        if kind == "integers":
            low, high = (ops.index_expr(bound, torch.int64) for bound in bounds)
            return ops.to_dtype(ops.randint64(seed, place, low, high), dtype)
        if kind == "below":
            whole = (ops.constant(bound, torch.int64) for bound in (0, 1 << 32))
            drawn = ops.lt(ops.randint64(seed, place, *whole), ops.constant(bounds[0], torch.int64))
            return drawn if dtype == torch.bool else ops.to_dtype(drawn, dtype)
        if dtype == torch.float64 and kind == "uniform":
            return _uniform64(seed, place)
        if dtype == torch.float64:
            block = ops.add(begin, ops.index_expr(first + at(index) // 2 * 4, torch.int64))
            return _normal64(
                seed, block, ops.eq(ops.index_expr(at(index) % 2, torch.int64), ops.constant(1, torch.int64))
            )
        value = ops.rand(seed, place) if kind == "uniform" else ops.randn(seed, place)
        if kind == "uniform" and dtype in _ROUNDED_UP:
            is_below = ops.lt(value, ops.constant(_ROUNDED_UP[dtype], torch.float32))
            value = ops.where(is_below, value, ops.constant(0.0, torch.float32))
        return value if dtype == torch.float32 else ops.to_dtype(value, dtype)

    made = ir.Pointwise.create(device=device, dtype=dtype, inner_fn=element, ranges=size)
    made.realize()  # computed once for all readers
    return made


# ---- before the graph


def _is_on_device(args: Sequence[Any]) -> bool:
    return any(isinstance(one, torch.Tensor) and one.device.type == _backend.device for one in args)


def _kept(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the operator in the graph if it is on the device."""

    @functools.wraps(decompose)
    def choose(*args: Any, **kwargs: Any) -> Any:
        return NotImplemented if _is_on_device(args) else decompose(*args, **kwargs)

    return choose


def _like(make: Callable[..., Any], decompose: Callable[..., Any]) -> Callable[..., Any]:
    """On the device, draw numbers in row-major order, whatever layout the result has."""

    @functools.wraps(decompose)
    def choose(x: torch.Tensor, *bounds: Any, memory_format: Any = torch.preserve_format, **kwargs: Any) -> Any:
        if not _is_on_device([x]):
            return decompose(x, *bounds, memory_format=memory_format, **kwargs)
        kwargs = {"dtype": x.dtype, "device": x.device, **{key: one for key, one in kwargs.items() if one is not None}}
        made = make(*bounds, x.shape, **kwargs)
        if memory_format != torch.preserve_format:
            return made.to(memory_format=memory_format)
        _, order = decomposition._get_shape_permutation_like(x)
        if order == sorted(order):
            return made
        back = sorted(range(len(order)), key=order.__getitem__)
        return made.permute(back).contiguous().permute(order)

    return choose


def register() -> None:
    """Register with Inductor, once."""
    known = decomposition.extra_random_decomps
    tables = decomposition.fast_random_decomps(), decomposition.decompositions  # a compilation has begun with one
    packets: set[Any] = {getattr(op, "overloadpacket", op) for op in (take_numbers, *known)}
    rand_ops.extend(packets - {*rand_ops})  # calls are not deduplicated
    likes: dict[Any, Any] = {
        aten.rand_like.default: torch.rand,
        aten.randn_like.default: torch.randn,
        aten.randint_like.default: functools.partial(aten.randint.low, 0),
        aten.randint_like.low_dtype: aten.randint.low,
    }
    op: Any
    for op in (*known, *likes):
        for table in tables:  # in torch 2.11 the likes are in both
            if op in table:
                table[op] = _like(likes[op], table[op]) if op in likes else _kept(table[op])
        if op not in lowering.lowerings:
            lowering.make_fallback(op, override_decomp=True)
    lowering.make_fallback(take_numbers)
    lowering.lowerings[random_elements] = _lower
    _register_patterns()
