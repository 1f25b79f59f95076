"""Decides, when a graph is lowered, which operators are calls: those that the dialect or the target does not support.

Inductor asks a backend for such operators only when it writes a kernel, which is too late to make them calls. So the
entries of its table of lowerings are wrapped; for tensors of other devices they do not change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor import config, ir, lowering
from torch._inductor.codegen.common import pointwise_overrides_data
from torch._inductor.graph import GraphLowering
from torch._inductor.ops_handler import OpsHandler
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V
from torch.utils import _pytree as pytree

from torch_backplane import _backend, compiler
from torch_backplane.inductor import language
from torch_backplane.inductor.dtypes import ATOMICS, FLOAT64
from torch_backplane.inductor.ops import SPECIAL, DialectOps

# With many items per group, the operator scans a row of so many elements in parts, unless there are so many rows.
LONG_ROW, MANY_ROWS = 2 * 16384, 256
_PRODUCTS = ("mm", "bmm", "addmm")
SCANS = "cumsum cumprod logcumsumexp cummax cummin".split()
# They report a text when the device is synchronized, which generated kernels do not.
ASSERTS = ("_assert_async", "_functional_assert_async")
# Random operators: those without a kernel in random.py, and all of them under config.fallback_random.
RANDOM = "bernoulli bernoulli_ cauchy exponential geometric log_normal native_dropout normal normal_functional".split()
RANDOM += "rand rand_like randint randint_like randn randn_like rrelu_with_noise uniform".split()
SUMS = "index_put index_put_ _unsafe_index_put _unsafe_index_put_".split()
"""Sums into places that may repeat, with ``accumulate``."""
ALWAYS_SUMS = "_unsafe_masked_index_put_accumulate scatter_add scatter_add_ scatter_reduce scatter_reduce_".split()

Rule = Callable[[torch.device, Sequence[Any], dict[str, Any]], bool]
"""Whether a call with these arguments is left to the device's operator."""

left: set[Any] = set()
"""Operators that are calls in a graph of this process because the dialect or the target does not support them."""


def lacking() -> list[str]:
    """Inductor's operators without an expression here."""
    names = (*pointwise_overrides_data, "lgamma", "erfinv")
    return sorted(name for name in names if getattr(DialectOps, name) is getattr(OpsHandler, name))


def _aten(name: str) -> str:
    data = pointwise_overrides_data.get(name)
    return data.name if data is not None else name


def register() -> None:
    """Wrap the lowerings, once."""
    never, not_double = ({_aten(name) for name in names} | set(names) for names in (lacking(), SPECIAL))
    never.update(ASSERTS, RANDOM)
    for op, lower in list(lowering.lowerings.items()):
        if not isinstance(op, torch._ops.OpOverload) or op.namespace not in ("aten", "prims"):
            continue
        name, overload = op._schema.name.split("::")[1], op._schema.overload_name
        rule: Rule = _leaves_nothing
        if name in never:
            rule = _leaves_all
        elif name in not_double:
            rule = _leaves_float64
        elif name in SCANS:
            lower = _unless_long(op, lower)
        elif name == "any":
            lower = _keeps_uint8(lower)
        elif name in SUMS or name in ALWAYS_SUMS or (name in ("scatter", "scatter_") and "reduce" in overload):
            rule = functools.partial(_leaves_sums, name in SUMS)
        elif name == "pow":
            rule = _leaves_integers
        elif name in _PRODUCTS and overload == "dtype":  # which torch only lowers for CUDA and XPU
            rule = _leaves_all
        elif name == "convolution":
            rule = _leaves_unless_tuned
        elif name == "lift_fresh_copy":  # the only operator whose lowering the mode of eager_calls.py uses
            rule = _leaves_without_kernels
        elif hasattr(lower, "_is_fallback_handler"):
            continue
        lowering.lowerings[op] = _wrapped(op, lower, rule)
    GraphLowering.decide_layout_opt = staticmethod(_keeps_layouts(GraphLowering.decide_layout_opt))  # type: ignore[method-assign]


def _leaves_nothing(*_: Any) -> bool:
    return False


def _leaves_all(*_: Any) -> bool:
    return True


def _leaves_float64(_: torch.device, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return any(one.get_dtype() == torch.float64 for one in args if hasattr(one, "get_dtype"))


def _leaves_integers(_: torch.device, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """For tensor operands only: torch's lowering makes it a call as well, but first expands a number on the CPU."""
    return all(hasattr(one, "get_dtype") and not one.get_dtype().is_floating_point for one in args)


def _leaves_unless_tuned(_: torch.device, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """The device's convolution takes its operands in any order; torch's lowering converts both to one at each call."""
    is_tuned = config.max_autotune or config.max_autotune_gemm or config.conv_1x1_as_mm or V.graph.layout_opt
    return len(args[1].get_size()) > 3 and not is_tuned


def _keeps_layouts(decide: Callable[..., bool]) -> Callable[..., bool]:
    """channels_last for all convolutions is CUDA's preference; here, only if force_layout_optimization asks for it."""

    def decided(gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> bool:
        values = [node.meta.get("val") for node in gm.graph.nodes if node.target is torch.ops.aten.convolution.default]
        ours = any(isinstance(one, torch.Tensor) and one.device.type == _backend.device for one in values)
        return decide(gm, *args, **kwargs) and (not ours or config.force_layout_optimization)

    return decided


def _leaves_without_kernels(*_: Any) -> bool:
    return bool(language.why_none())


def _leaves_sums(may_overwrite: bool, device: torch.device, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    overwrites = may_overwrite and not (args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    if overwrites or not compiler.has_target():
        return False
    needed = ATOMICS.get(args[0].get_dtype())
    return needed is None or not compiler.target(device.index or 0).atomics & needed


def has_float64(device: torch.device) -> bool:
    """Whether kernels of a device support float64; True if there are none."""
    return not compiler.has_target() or bool(compiler.target(device.index or 0).dtypes & FLOAT64)


def _call_of(op: Any) -> Callable[..., Any]:
    """Lower an operator to its call. One that writes its first argument returns that argument, and no new buffer.

    Otherwise Inductor reuses the memory when nothing reads the new buffer. Readers of the old values run before it.
    """
    operator = lowering.fallback_handler(op, add_to_fallback_set=False)
    results, written = op._schema.returns, [one.alias_info is not None for one in op._schema.arguments]
    if len(results) != 1 or not op._schema.is_mutable or not written[0]:
        return operator

    def write(x: Any, *args: Any, **kwargs: Any) -> Any:
        x.realize()
        V.graph.mark_buffer_mutated(x.get_name())
        operator(x, *args, **kwargs)
        return x

    return write


def _computed_ahead(x: Any, others: Any) -> Any:
    """Places and values that read the memory which an operator writes, computed before its kernel overwrites it.

    A view of that memory is copied: index_copy of a tensor into itself, or what a place of the only row reads.
    """
    clone = lowering.lowerings[torch.ops.aten.clone.default]
    x.realize()
    name = x.get_name()

    def ahead(one: Any) -> Any:
        if not isinstance(one, ir.TensorBox):
            return one
        if ir.try_get_name(one) == name:
            one = clone(one)
        elif name not in one.get_read_names():
            return one
        one.realize()
        return one

    return pytree.tree_map(ahead, others)


def _wrapped(op: Any, lower: Callable[..., Any], leaves: Rule) -> Callable[..., Any]:
    operator = _call_of(op)
    name = op._schema.name.split("::")[1]
    writes_places = op._schema.is_mutable and name in (*SUMS, *ALWAYS_SUMS, "scatter_")

    @functools.wraps(lower)
    def choose(*args: Any, **kwargs: Any) -> Any:
        operands = [one for one in pytree.tree_leaves((args, kwargs)) if hasattr(one, "maybe_get_dtype")]
        known = [(one.get_device(), one.maybe_get_dtype()) for one in operands] + _results(op)
        ours = next((one for one, _ in known if one is not None and one.type == _backend.device), None)
        if ours is None:
            return lower(*args, **kwargs)
        if writes_places:
            args, kwargs = (args[0], *_computed_ahead(args[0], args[1:])), _computed_ahead(args[0], kwargs)
        lacks_float64 = any(dtype == torch.float64 for _, dtype in known) and not has_float64(ours)
        if lacks_float64 or leaves(ours, args, kwargs):
            left.add(op)
            return operator(*args, **kwargs)
        return lower(*args, **kwargs)

    return choose


def _results(op: Any) -> list[tuple[torch.device, torch.dtype]]:
    """Devices and dtypes of the current node's results, if the node is a call of the operator itself."""
    node = V.graph.current_node
    if node is None or node.target is not op:
        return []
    fakes = pytree.tree_leaves(node.meta.get("val"))
    return [(one.device, one.dtype) for one in fakes if isinstance(one, torch.Tensor)]


def _keeps_uint8(lower: Callable[..., Any]) -> Callable[..., Any]:
    """``any`` of uint8 is uint8, as in eager; Inductor's lowering makes it bool, on the CPU as well."""
    convert = lowering.lowerings[torch.ops.prims.convert_element_type.default]

    def choose(x: Any, *args: Any, **kwargs: Any) -> Any:
        result = lower(x, *args, **kwargs)
        ours = x.get_device().type == _backend.device
        return convert(result, torch.uint8) if ours and x.get_dtype() == torch.uint8 else result

    return choose


def _unless_long(op: Any, lower: Callable[..., Any]) -> Callable[..., Any]:
    operator = lowering.fallback_handler(op, add_to_fallback_set=False)

    def choose(x: Any, dim: int, **kwargs: Any) -> Any:
        device, sizes = x.get_device(), x.get_size()
        if device.type != _backend.device or not sizes or compiler.target(device.index or 0).group_size == 1:
            return lower(x, dim, **kwargs)
        size, count = (
            int(V.graph.sizevars.optimization_hint(one, fallback=1)) for one in (sizes[dim], sympy_product(sizes))
        )
        is_long = size >= LONG_ROW and count < MANY_ROWS * size
        return operator(x, dim, **kwargs) if is_long else lower(x, dim, **kwargs)

    return choose
