"""``max_autotune``: a product is the device's operator, a kernel of tiles or a Triton template, whichever is faster.

torch caches and prints the measurements; this module adds the choices. If a pointwise operator follows, the
device's operator is measured together with a pass over its result, since that operator then is a separate kernel, but
is fused into a kernel of tiles. Uses private classes of torch, ``ExternKernelCaller`` and ``ChoiceCaller``; tested on
torch 2.13 and 2.15.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch._dynamo.utils import counters
from torch._inductor import config, ir, lowering
from torch._inductor.codegen.simd import SIMDKernel
from torch._inductor.runtime.triton_heuristics import NoTritonConfigsError
from torch._inductor.select_algorithm import (
    ExternKernelCaller,
    NoValidChoicesError,
    TritonTemplateCaller,
    add_preprocessing_fn,
)
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from torch_backplane import _backend, compiler
from torch_backplane.inductor import product_template, runtime
from torch_backplane.inductor.language import language
from torch_backplane.inductor.product import ELEMENTS, Product, ProductBuffer, ProductKernel, Tiles, tilings

_OPERATORS = ("mm", "addmm", "bmm", "baddbmm")
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default, torch.ops.aten.reshape.default)
_BACKENDS = {
    "ATEN": "the device's operators",
    "CPP": "tiles of the kernel dialect",
    "TRITON": "torch's Triton templates",
}
_asked: ContextVar[tuple[str, ...]] = ContextVar("_asked", default=tuple(_BACKENDS))
"""The backends of ``max_autotune_gemm_backends`` while a product is lowered."""

_WARM = 3  # calls before the measurement: the first compiles
_SPAN_S = 0.1  # for how long a choice is measured
_NO_PRODUCT = "it has other dtypes than float32, float16 or bfloat16, several devices, or no elements"


def register() -> None:
    """Add the kernels to torch's choices."""
    packets = [getattr(torch.ops.aten, name) for name in _OPERATORS]
    attention = torch.ops.higher_order.flex_attention, torch.ops.higher_order.flex_attention_backward
    for op in (*packets, *(packet.default for packet in packets), *attention):
        if op in lowering.lowerings:
            lowering.lowerings[op] = _decided_at_once(lowering.lowerings[op])
    add_preprocessing_fn(offer)


def _decided_at_once(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Measure at once and in this process.

    Torch's deferred choice measures a product with its epilogue, for kernels of Triton alone. Its processes for
    measurements choose their device by a variable of CUDA.
    """
    here = {"benchmark_epilogue_fusion": False, "pipeline_max_autotune_gemm": False, "autotune_in_subproc": False}

    def decide(*args: Any, **kwargs: Any) -> Any:
        if args[0].get_device().type != _backend.device:
            return lower(*args, **kwargs)
        asked = _backends()
        token = _asked.set(asked)
        try:  # the other choices are made from the operator
            with config.patch({**here, "max_autotune_gemm_backends": ",".join({"ATEN": 0} | dict.fromkeys(asked))}):
                return lower(*args, **kwargs)
        finally:
            _asked.reset(token)

    return decide


def _is_wanted() -> bool:
    return bool(config.max_autotune or config.max_autotune_gemm)


def _backends() -> tuple[str, ...]:
    names = tuple(filter(None, config.max_autotune_gemm_backends.upper().replace(" ", "").split(",")))
    if not _is_wanted():
        return tuple(_BACKENDS)
    if not names or not set(names) <= set(_BACKENDS):
        known = ", ".join(f"{name} ({what})" for name, what in _BACKENDS.items())
        raise NotImplementedError(
            f"max_autotune_gemm_backends is {config.max_autotune_gemm_backends!r}; {_backend.device} supports {known}"
        )
    return names


def offer(choices: list[Any]) -> list[Any]:
    """Torch's choices, and the kernels of tiles and templates if there are any for this product."""
    ours = [one for one in choices if _is_ours(one.layout)]
    if not ours:
        return choices
    target = compiler.target(ours[0].layout.device.index or 0)
    measured = [_measured(one, target) if one in ours else one for one in choices]
    operators = (one for one in ours if isinstance(one, ExternKernelCaller))
    operator = next((one for one in operators if one.name in _OPERATORS), None)
    if operator is None or not _is_wanted():
        return measured
    asked, product = _asked.get(), _product_of(operator)
    reasons = {"TRITON": _why_no_template, "CPP": _why_no_tiles}
    why = {name: reasons[name](product) for name in asked if name in reasons}
    found = measured if "ATEN" in asked else []
    if why.get("TRITON") == "":
        found += [ProductTemplate(one, target) for one in product_template.offers(operator, target.group_size)]
    if product and why.get("CPP") == "":
        found += [ProductCaller(product, operator, tiles, target) for tiles in tilings(target)]
    if not found:
        lacks = "; ".join(f"{name}: {reason or 'no size fits'}" for name, reason in why.items())
        raise NoValidChoicesError(
            f"no backend of max_autotune_gemm_backends={','.join(asked)!r} computes this product of {_backend.device} "
            f"({lacks}): add ATEN, the device's operator"
        )
    return found


def _why_no_template(product: Product | None) -> str:
    return product_template.why_none() if product else _NO_PRODUCT


def _why_no_tiles(product: Product | None) -> str:
    if not product:
        return _NO_PRODUCT
    if language() == "triton":
        return "kernels are chosen to be Triton's"
    if not hasattr(SIMDKernel, "codegen_template_body"):
        _warn_without_tiles()
        return f"torch {torch.__version__} does not support kernels of tiles of a backend"
    return ""


@functools.cache
def _warn_without_tiles() -> None:
    warnings.warn(
        f"max_autotune: torch {torch.__version__} does not support kernels of tiles of a backend; products of matrices "
        f"are {_backend.device}'s operators",
        stacklevel=2,
    )


def _measured(choice: Any, target: compiler.Target) -> Any:
    if isinstance(choice, ExternKernelCaller):
        return MeasuredOperator(choice, target)
    if isinstance(choice, TritonTemplateCaller):
        return MeasuredTemplate(choice, target)
    return choice


def _count(kind: str) -> None:
    """Count what computes a product, for tests and for users."""
    counters["inductor"][f"{_backend.device}_product_{kind}"] += 1


def _is_ours(layout: Any) -> bool:
    return layout is not None and layout.device.type == _backend.device


def _product_of(operator: ExternKernelCaller) -> Product | None:
    *added, a, b = operator.input_nodes
    dtype = operator.layout.dtype
    nodes = [*added, a, b]
    alpha, beta = operator.kwargs.get("alpha", 1), operator.kwargs.get("beta", 1)
    if dtype not in ELEMENTS or any(one.get_dtype() != dtype or one.get_device() != a.get_device() for one in nodes):
        return None
    if isinstance(alpha, sympy.Basic) or isinstance(beta, sympy.Basic):
        return None
    if V.graph.sizevars.statically_known_equals(sympy_product(operator.layout.size), 0):
        return None
    return Product(a, b, added[0] if added else None, alpha, beta)


def _facts(target: compiler.Target) -> str:
    return f"{_backend.device}-{target.name}-{target.compiler}-{target.group_size}"


def _is_followed() -> bool:
    """Whether only pointwise operators read the result."""
    users = list(V.graph.current_node.users)
    while len(users) == 1 and users[0].target in _VIEWS:
        users = list(users[0].users)
    return bool(users) and all(torch.Tag.pointwise in getattr(user.target, "tags", ()) for user in users)


def _milliseconds(call: Callable[[], Any], out: torch.Tensor) -> float:
    """The time of the fastest of several calls, by the device's events: other work only slows calls down."""
    module = getattr(torch, _backend.device)
    shortest = math.inf
    with module.device(out.device):
        for _ in range(_WARM):
            call()
        module.synchronize()
        begin, end = (module.Event(enable_timing=True) for _ in range(2))
        deadline = time.perf_counter() + _SPAN_S
        while shortest == math.inf or time.perf_counter() < deadline:
            begin.record()
            call()
            end.record()
            end.synchronize()
            shortest = min(shortest, begin.elapsed_time(end))
    return shortest


class MeasuredOperator(ExternKernelCaller):
    """The device's operator, measured on the device; torch's class measures on CUDA."""

    def __init__(self, operator: ExternKernelCaller, target: compiler.Target) -> None:
        super().__init__(
            operator.choice,
            operator.input_nodes,
            operator.layout,
            operator.kwargs,
            has_out_variant=operator.has_out_variant,
        )
        self.annotations = operator.annotations
        self._target, self._followed = target, _is_followed()

    def output_node(self) -> Any:
        if self.name in (*_OPERATORS, "bias_addmm"):
            _count("operator")
        return super().output_node()

    def benchmark(self, *args: Any, out: torch.Tensor) -> float:
        function = self.choice.to_callable()

        def call() -> None:
            function(*args, **({"out": out} if self.has_out_variant else {}), **self.kwargs)
            if self._followed:
                out.relu_()

        return _milliseconds(call, out)

    def hash_key(self) -> str:
        return f"{super().hash_key()}-{_facts(self._target)}-{'followed' if self._followed else 'alone'}"


class MeasuredTemplate(TritonTemplateCaller):
    """A Triton template, measured on the device; torch's class measures on CUDA."""

    def __init__(self, template: TritonTemplateCaller, target: compiler.Target) -> None:
        self.__dict__.update(vars(template))
        self._target = target

    def benchmark(self, *args: Any, out: torch.Tensor) -> float:
        call = self.bmreq.make_run_fn(*args, out=out)
        try:
            return _milliseconds(call, out)
        except NoTritonConfigsError as error:
            if "OutOfResources" not in str(error):
                raise
            return math.inf  # its blocks need more local memory than the target has
        finally:
            self.bmreq.cleanup_run_fn()

    def hash_key(self) -> str:
        return f"{super().hash_key()}-{_facts(self._target)}"


class ProductTemplate(MeasuredTemplate):
    """A Triton template of a product."""

    def output_node(self) -> Any:
        _count("template")
        return super().output_node()


class ProductCaller(ir.ChoiceCaller):
    """A kernel of tiles."""

    def __init__(self, product: Product, operator: ExternKernelCaller, tiles: Tiles, target: compiler.Target) -> None:
        name = f"{operator.name}_tiles_{tiles.m}x{tiles.n}x{tiles.k}"
        super().__init__(name, product.inputs(), operator.layout, f"items of {tiles.micro_m}x{tiles.micro_n}")
        self.product, self.tiles, self._target = product, tiles, target
        self._text, self._names, self._numbers = self._alone()
        self._kernel: Any = None

    def _alone(self) -> tuple[str, list[str], list[int]]:
        """The kernel without epilogue: its text, the tensors of a call, and estimates of its numbers."""
        output = ir.Buffer(name="product_alone", layout=self.layout)
        known = V.graph.get_dtype

        def dtype_of(name: str) -> torch.dtype:
            return output.get_dtype() if name == output.get_name() else known(name)

        with (
            patch.object(V.graph, "get_dtype", dtype_of),
            patch.object(ir.FlexibleLayout, "allow_indexing", True),
            V.graph.set_current_device(self.layout.device),
        ):
            kernel = ProductKernel(self.product, output, self.tiles)
            text = kernel.codegen_template_body(None, None, [], [])
            tensors, numbers = kernel.call_arguments()
        hint = V.graph.sizevars.optimization_hint
        return text, [str(one) for one in tensors], [int(hint(one)) for one in numbers]

    def precompile(self) -> None:
        """Compile the kernel, once."""
        if self._kernel is None:
            line = self._text.replace("{name}", self.name, 1)
            at_once = SimpleNamespace(submit=lambda function: function())  # instead of Inductor's threads
            self._kernel = eval(line, {"generated_kernel": runtime.generated_kernel, "async_compile": at_once})

    def benchmark(self, *args: Any, out: torch.Tensor) -> float:
        self.precompile()
        names = dict.fromkeys(one.get_name() for one in self.input_nodes)
        tensors = {**dict(zip(names, args, strict=True)), "product_alone": out}
        arguments = [*(tensors[name] for name in self._names), *self._numbers]
        return _milliseconds(lambda: self._kernel(*arguments), out)

    def hash_key(self) -> str:
        return f"{self.name}-{hashlib.sha256(self._text.encode()).hexdigest()}-{_facts(self._target)}"

    def call_name(self) -> str:
        return f"{_backend.device}.{self.name}"

    def info_dict(self) -> dict[str, Any]:
        return {"backend": _backend.device, "tiles": str(self.tiles)}

    def output_node(self) -> Any:
        _count("tiles")
        for node in self.input_nodes:
            node.freeze_layout()

        def kernel_and_text(node: Any, hint_override: int | None = None) -> tuple[ProductKernel, None]:
            return ProductKernel(self.product, node, self.tiles), None

        return ir.TensorBox.create(ProductBuffer(self.layout, self.input_nodes, kernel_and_text))
