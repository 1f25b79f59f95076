"""Calls of FlagGems' operators with tensors of the CPU: those of torch's own samples, and written ones for others."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

LARGEST = 20_000
"""Elements of all tensors of a call."""
CALL = tuple[tuple[Any, ...], dict[str, Any]]


def copied(call: CALL, device: torch.device | str = "cpu") -> CALL:
    """The arguments of a call, on a device; nothing of them is shared with another copy."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone() if str(device) == "cpu" else tensor.detach().to(device)

    moved: CALL = tree_map_only(torch.Tensor, copy, call)
    return tree_map_only(torch.device, lambda _: torch.device(device), moved)


def overload(key: str) -> Any:
    """ATen's operator of a key of FlagGems; None if this torch has none of the name."""
    packet, _, name = key.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), name or "default", None)


class Recorder(TorchDispatchMode):
    """Notes the calls of an operator that are not of empty tensors or single numbers."""

    def __init__(self, wanted: Any) -> None:
        super().__init__()
        self.wanted = wanted
        self.calls: list[CALL] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        call = args, kwargs or {}
        if function is self.wanted:
            tensors = [one for one in tree_leaves(call) if isinstance(one, torch.Tensor)]
            whole = all(one.numel() for one in tensors) and (not tensors or tensors[0].dim() > 0)
            if whole and sum(one.numel() for one in tensors) <= LARGEST:
                self.calls.append(copied(call))
        return function(*call[0], **call[1])


# The samples that call an operator, where they have another name than it.
SAMPLES = {
    "_log_softmax_backward_data": "log_softmax",
    "_safe_softmax": "torch.ops.aten._safe_softmax.default",
    "_softmax_backward_data": "softmax",
    "_to_copy": "isclose",
    "_upsample_nearest_exact1d": "nn.functional.interpolate.nearest-exact",
    "avg_pool2d_backward": "nn.functional.avg_pool1d",
    "copy_": "add",
    "diagonal_backward": "corrcoef",
    "div.Tensor_mode": "div.trunc_rounding",
    "embedding_dense_backward": "nn.functional.embedding",
    "exponential_": "exponential",
    "index.Tensor": "__getitem__",
    "max_pool2d_with_indices": "nn.functional.max_pool1d",
    "native_batch_norm_backward": "native_batch_norm",
    "native_dropout_backward": "native_dropout_backward",
    "native_group_norm": "nn.functional.group_norm",
    "native_group_norm_backward": "nn.functional.group_norm",
    "native_layer_norm_backward": "native_layer_norm",
    "nll_loss_backward": "nn.functional.nll_loss",
    "nll_loss_forward": "nn.functional.nll_loss",
    "reflection_pad1d": "nn.functional.pad.reflect",
    "relu_": "nn.functional.relu",
    "replication_pad1d": "nn.functional.pad.replicate",
    "rrelu_with_noise_backward": "nn.functional.rrelu",
    "slice_backward": "diff",
    "sum.dim_IntList": "sum",
    "tanh_backward": "tanh",
    "threshold_backward": "nn.functional.relu",
    "unfold_backward": "unfold",
    "upsample_bicubic2d": "nn.functional.interpolate.bicubic",
    "upsample_linear1d": "nn.functional.interpolate.linear",
    "upsample_nearest1d": "nn.functional.interpolate.nearest",
    "upsample_nearest2d": "nn.functional.interpolate.nearest",
    "var_mean.correction": "var_mean",
    "std.correction": "std",
}


def _named(key: str) -> list[Any]:
    """The samples of an operator: by the table, then by its name, then all."""
    base = key.partition(".")[0].strip("_").removesuffix("_backward")
    wanted = SAMPLES.get(key)
    if wanted:
        return [op for op in op_db if wanted in (op.full_name, op.name)]
    return [op for op in op_db if op.name.rpartition(".")[2].strip("_") == base]


def recorded(key: str, dtype: torch.dtype) -> list[CALL]:
    """Calls of an operator that torch's samples make on the CPU."""
    recorder = Recorder(overload(key))
    in_place = overload(key)._schema.is_mutable
    for op in _named(key):
        if dtype not in op.dtypes:
            continue
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gradient = op.supports_autograd and dtype.is_floating_point
            for _, sample in zip(range(8), op.sample_inputs("cpu", dtype, requires_grad=gradient), strict=False):
                with recorder:
                    run = op.inplace_variant if in_place and op.inplace_variant else op
                    _try(run, sample, gradient and run is op)
                if len(recorder.calls) >= 4:
                    return recorder.calls
    return recorder.calls


def _try(function: Any, sample: Any, gradient: bool) -> None:
    try:
        start = sample.input if gradient else tree_map_only(torch.Tensor, torch.Tensor.detach, sample.input)
        found = tree_leaves(function(start, *sample.args, **sample.kwargs))
        outputs = [one for one in found if isinstance(one, torch.Tensor) and one.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(one) for one in outputs])
    except (RuntimeError, NotImplementedError, ValueError, IndexError, TypeError):
        pass  # what the CPU does not have in this dtype


# An operator that is called as another one.
AS = {
    "absolute": "abs",
    "arctanh_": "atanh_",
    "div.out": "div.Tensor",
    "greater.Tensor": "gt.Tensor",
    "greater.out": "gt.Tensor",
    "special_i1": "i0",
    "special_i0e": "i0",
    **{f"arcsinh{end}": f"asinh{end.replace('.out', '')}" for end in ("", "_", ".out")},
    **{
        f"{name}divide{end}": f"div{end.replace('_.', '.')}"
        for name in ("", "true_")
        for end in (".Tensor", "_.Tensor")
    },
    **{f"divide{end}_mode": "div.Tensor_mode" for end in (".Tensor", "_.Tensor")},
}


def calls(key: str, dtype: torch.dtype) -> list[CALL]:
    """Some of an operator in a dtype; none if it, or the CPU, does not have it."""
    return [call for call in _calls(key, dtype) if _is_the_cpus(key, call)]


def _calls(key: str, dtype: torch.dtype) -> list[CALL]:
    if key in WRITTEN:
        made = WRITTEN[key](Drawn(dtype))
        return made if isinstance(made, list) else [made]
    source = AS.get(key, key)
    packet, _, name = source.partition(".")
    if overload(source) is not None and (found := recorded(source, dtype)):
        return [_with_out(call, source) for call in found] if key.endswith("out") else found
    if packet.endswith("_"):
        return calls(f"{packet[:-1]}{'.' * bool(name)}{name}", dtype)
    if name.endswith("out"):
        for functional in (f"{packet}.{name[:-4] or 'default'}", packet, f"{packet}.Tensor"):
            if overload(functional) is not None and (found := calls(functional, dtype)):
                return [_with_out(call, functional) for call in found]
    return []


def _is_the_cpus(key: str, call: CALL) -> bool:
    """Whether the CPU computes it, in its dtype."""
    args, kwargs = copied(call)
    try:
        (INSTEAD.get(key) or overload(key))(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _with_out(call: CALL, functional: str) -> CALL:
    args, kwargs = call
    found = overload(functional)(*copied(call)[0], **copied(call)[1])
    return args, {**kwargs, "out": torch.empty_like(found)}


class Drawn:
    """Tensors of a dtype: ``d(3, 4)``."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(3)

    def __call__(self, *shape: int) -> torch.Tensor:
        if self.dtype.is_floating_point:
            return torch.randn(*shape, generator=self.generator).to(self.dtype)
        return torch.randint(-9, 9, shape, generator=self.generator).to(self.dtype)

    def below(self, high: int, *shape: int) -> torch.Tensor:
        """Indices."""
        return torch.randint(high, shape, generator=self.generator)

    def given(self, *args: Any, **kwargs: Any) -> CALL:
        return args, kwargs

    @property
    def floats(self) -> bool:
        return self.dtype.is_floating_point


def _floats(make: Any) -> Any:
    return lambda d: make(d) if d.floats else []


def _one(make: Any) -> Any:
    """Of one dtype alone."""
    return lambda d: make(d) if d.dtype == torch.float32 else []


def _integers(make: Any) -> Any:
    return lambda d: [] if d.floats else make(d)


def _normed(d: Drawn) -> CALL:
    v, g = d(6, 5), d(6, 1)
    norms = torch.ops.aten._weight_norm_interface(v, g)[1]
    return d.given(d(6, 5), v, g, norms, 0)


def _pooled(d: Drawn) -> CALL:
    x = d(2, 3, 8, 8)
    found, at = torch.ops.aten.max_pool2d_with_indices(x, [2, 2], [2, 2])
    return d.given(torch.ones_like(found), x, at, [2, 2], [2, 2], [0, 0], [1, 1], False)


def _losses(d: Drawn) -> CALL:
    return d.given(d(2, 5, 3, 4).log_softmax(1), d.below(5, 2, 3, 4), None, 1, -100)


def _loss_gradients(d: Drawn) -> CALL:
    args, _ = _losses(d)
    found, weight = torch.ops.aten.nll_loss2d_forward(*args)
    return d.given(torch.ones_like(found), *args, weight)


def _convolution(n: int) -> dict[str, Any]:
    size = (9,) * n
    return {
        f"conv{n}d": _floats(lambda d: d.given(d(2, 4, *size), d(6, 2, *(3,) * n), d(6), [2] * n, [1] * n, [1] * n, 2)),
        f"conv{n}d.padding": _floats(lambda d: d.given(d(2, 4, *size), d(6, 4, *(3,) * n), d(6), [1] * n, "same")),
    }


WRITTEN: dict[str, Any] = {
    **{
        f"{name}.{kind}": _integers(lambda d, kind=kind: d.given(d(5, 7), 3 if kind == "Scalar" else d(5, 7)))
        for name in ("__or__", "__ior__", "bitwise_and", "bitwise_and_", "bitwise_or", "bitwise_or_")
        for kind in ("Scalar", "Tensor")
    },
    **{f"bitwise_{name}.Scalar_Tensor": _integers(lambda d: d.given(3, d(5, 7))) for name in ("and", "or")},
    **{
        f"bitwise_{way}_shift": lambda d: (
            [] if d.floats or d.dtype == torch.bool else d.given(d(5, 7), d.below(4, 5, 7).to(d.dtype))
        )
        for way in ("left", "right")
    },
    **{
        f"{name}.Scalar": lambda d: d.given(d(5, 7), 1)
        for name in ("eq", "ge", "gt", "le", "lt", "ne", "greater", "remainder", "remainder_", "div", "div_")
    },
    **{f"{name}divide{end}.Scalar": lambda d: d.given(d(5, 7), 3) for name in ("", "true_") for end in ("", "_")},
    **{name: lambda d: d.given(d(5, 7), -1, 2) for name in ("clamp", "clamp_", "clip", "clip_")},
    **{name: lambda d: d.given(d(5, 7), 1) for name in ("clamp_min", "clamp_min_")},
    "pow.Scalar": lambda d: d.given(2, d(5, 7).abs()) if d.dtype != torch.bool else [],
    "pow.Tensor_Scalar": lambda d: d.given(d(5, 7), 3),
    "pow_.Scalar": lambda d: d.given(d(5, 7), 3),
    "_unique2": lambda d: d.given(d(40), True, True, True),
    "unique_consecutive": lambda d: d.given(d(40), True, True),
    "allclose": _floats(lambda d: d.given(d(5, 7), d(5, 7))),
    "arange": lambda d: d.given(9, dtype=d.dtype, device=torch.device("cpu")) if d.dtype != torch.bool else [],
    "linalg_vector_norm": _floats(lambda d: [d.given(d(5, 7), order, [1]) for order in (1, 2, 3, math.inf)]),
    "nll_loss2d_forward": _floats(_losses),
    "nll_loss2d_backward": _floats(_loss_gradients),
    "nll_loss_nd_backward": _floats(_loss_gradients),
    "_assert_async": lambda d: d.given(torch.ones(1, dtype=d.dtype)),
    "_conv_depthwise2d": _floats(lambda d: d.given(d(2, 4, 9, 9), d(8, 1, 3, 3), [3, 3], d(8), [1, 1], [1, 1], [1, 1])),
    "_flash_attention_forward": lambda d: (
        []
        if d.dtype not in (torch.float16, torch.bfloat16)
        else d.given(d(2, 64, 4, 32), d(2, 64, 4, 32), d(2, 64, 4, 32), None, None, 64, 64, 0.0, True, False)
    ),
    "_functional_sym_constrain_range_for_size": lambda d: d.given(3, None, None, d(4)),
    "_grouped_mm": lambda d: (
        []
        if d.dtype != torch.bfloat16
        else d.given(d(64, 32), d(3, 32, 48), torch.tensor([16, 40, 64], dtype=torch.int32))
    ),
    "_index_put_impl_": lambda d: d.given(d(6, 5), [d.below(6, 4)], d(4, 5)),
    "_is_all_true": lambda d: (
        [] if d.dtype != torch.bool else [d.given(torch.ones(40, dtype=torch.bool)), d.given(d(40))]
    ),
    "_upsample_bicubic2d_aa": _floats(lambda d: d.given(d(2, 3, 9, 9), [4, 5], False)),
    "_upsample_bicubic2d_aa_backward": _floats(lambda d: d.given(d(2, 3, 4, 5), [4, 5], [2, 3, 9, 9], False)),
    "_weight_norm_interface": _floats(lambda d: d.given(d(6, 5), d(6, 1))),
    "_weight_norm_interface_backward": _one(_normed),
    **_convolution(1),
    **_convolution(2),
    **_convolution(3),
    "bernoulli_.float": lambda d: d.given(d(100, 100), 0.3),
    "conj_physical": lambda d: d.given(torch.complex(d(5, 7), d(5, 7)) if d.dtype == torch.float32 else d(5, 7)),
    "copysign": _floats(lambda d: d.given(d(5, 7), d(5, 7))),
    "copysign.out": _floats(lambda d: d.given(d(5, 7), d(5, 7), out=d(5, 7))),
    "diag": lambda d: [d.given(d(7)), d.given(d(5, 7), 1)],
    **{
        f"{name}{end}.Scalar_mode": lambda d: (
            d.given(d(5, 7), 3, rounding_mode="floor") if d.dtype != torch.bool else []
        )
        for name in ("div", "divide")
        for end in ("", "_")
    },
    "dot": _floats(lambda d: d.given(d(70), d(70))),
    "embedding_backward": _floats(lambda d: d.given(d(3, 4, 8), d.below(9, 3, 4), 9, -1, False, False)),
    "equal": lambda d: [d.given(x, x.clone() if alike else d(5, 7)) for x in [d(5, 7)] for alike in (False, True)],
    "exponential_": _floats(lambda d: d.given(d(100, 100), 2.0)),
    "eye": lambda d: d.given(5, dtype=d.dtype, device=torch.device("cpu")),
    "eye.m": lambda d: d.given(5, 7, dtype=d.dtype, device=torch.device("cpu")),
    "fill.Tensor": lambda d: d.given(d(5, 7), d(1)[0]),
    "fill_.Tensor": lambda d: d.given(d(5, 7), d(1)[0]),
    "floor_divide.Scalar": lambda d: d.given(d(5, 7), 3) if d.dtype != torch.bool else [],
    "floor_divide_.Scalar": lambda d: d.given(d(5, 7), 3) if d.dtype != torch.bool else [],
    "floor_divide_.Tensor": lambda d: d.given(d(5, 7), d(5, 7).abs() + 1) if d.dtype != torch.bool else [],
    "gather_backward": _floats(lambda d: d.given(d(3, 4), d(6, 4), 0, d.below(6, 3, 4), False)),
    "greater.Scalar_out": lambda d: d.given(d(5, 7), 1, out=torch.empty(5, 7, dtype=torch.bool)),
    "hstack": lambda d: d.given([d(5, 7), d(5, 3)]),
    "index_put": lambda d: d.given(d(6, 5), [d.below(6, 1)], d(5)),
    "isclose": lambda d: d.given(d(5, 7), d(5, 7)),
    "isfinite": lambda d: d.given(d(5, 7)),
    "isin.Scalar_Tensor": lambda d: [] if d.dtype == torch.bool else d.given(3, d(7)),
    "isin.Tensor_Scalar": lambda d: [] if d.dtype == torch.bool else d.given(d(5, 7), 3),
    "kron": lambda d: d.given(d(3, 4), d(5, 2)),
    "lift_fresh_copy": lambda d: d.given(d(5, 7)),
    "linspace": lambda d: d.given(0, 9, 20, dtype=d.dtype, device=torch.device("cpu")) if d.dtype != torch.bool else [],
    "log_sigmoid": _floats(lambda d: d.given(d(5, 7))),
    "margin_ranking_loss": _floats(lambda d: d.given(d(30), d(30), d(30).sign(), 0.1)),
    "max_pool2d_backward": _floats(_pooled),
    "multinomial": _floats(lambda d: d.given(d(4, 50).softmax(-1), 500, True)),
    "native_dropout": _floats(lambda d: d.given(d(100, 100), 0.3, True)),
    "native_group_norm": _floats(lambda d: d.given(d(2, 8, 4, 4), d(8), d(8), 2, 8, 16, 4, 1e-5)),
    "new_full.Tensor": lambda d: d.given(d(3), [4, 5], d(1)[0]),
    "nll_loss_nd_forward": _floats(lambda d: d.given(d(6, 5).log_softmax(-1), d.below(5, 6), None, 1, -100)),
    **{
        f"normal.{kind}": _floats(lambda d, kind=kind: _normal(d, kind))
        for kind in ("Tensor_float", "Tensor_Tensor", "float_Tensor")
    },
    "normal_": _floats(lambda d: d.given(d(100, 100), 2.0, 3.0)),
    "one_hot": lambda d: d.given(d.below(5, 3, 4), 5) if d.dtype == torch.int64 else [],
    "pad": lambda d: d.given(d(3, 5, 7), [1, 2, 2, 1], "constant", 1),
    "polar": _one(lambda d: d.given(d(5, 7).abs(), d(5, 7))),
    "pow_.Tensor": _floats(lambda d: d.given(d(5, 7).abs(), d(5, 7))),
    "prelu": _floats(lambda d: d.given(d(3, 4, 5), d(4))),
    "quantile": _one(lambda d: d.given(d(6, 40), torch.tensor([0.25, 0.6]), 1, True)),
    **{
        name: _floats(lambda d: d.given([100, 100], dtype=d.dtype, device=torch.device("cpu")))
        for name in ("rand", "randn")
    },
    **{name: _floats(lambda d: d.given(d(100, 100))) for name in ("rand_like", "randn_like")},
    "randperm": lambda d: d.given(1000, dtype=d.dtype, device=torch.device("cpu")) if d.dtype == torch.int64 else [],
    "repeat": lambda d: d.given(d(3, 4), [2, 3]),
    "roll": lambda d: d.given(d(3, 4), [1], [0]),
    "logspace": _floats(lambda d: d.given(0, 3, 20, 10.0, dtype=d.dtype, device=torch.device("cpu"))),
    "reflection_pad2d": _floats(lambda d: d.given(d(2, 3, 6, 7), [1, 2, 2, 1])),
    "relu6": lambda d: d.given(d(5, 7) * 4) if d.dtype != torch.bool else [],
    "remainder.Scalar_Tensor": lambda d: d.given(7, d(5, 7).abs() + 1) if d.dtype != torch.bool else [],
    "repeat_interleave.self_Tensor": lambda d: d.given(d(3, 4), torch.tensor([1, 0, 2]), 0),
    "repeat_interleave.self_int": lambda d: d.given(d(3, 4), 3, 1),
    "replication_pad3d": _floats(lambda d: d.given(d(1, 2, 3, 4, 5), [1, 2, 1, 0, 2, 1])),
    "resolve_conj": lambda d: d.given(d(5, 7)),
    "resolve_neg": lambda d: d.given(d(5, 7)),
    "rms_norm": _floats(lambda d: d.given(d(6, 40), [40], d(40), 1e-5)),
    "scaled_softmax_forward": lambda d: (
        [] if d.dtype not in (torch.float16, torch.bfloat16) else d.given(d(2, 4, 16, 32), 0.5)
    ),
    "scaled_softmax_backward": lambda d: (
        []
        if d.dtype not in (torch.float16, torch.bfloat16)
        else d.given(d(2, 4, 16, 32), d(2, 4, 16, 32).softmax(-1), 0.5)
    ),
    **{
        f"scatter{end}.reduce": _one(lambda d: d.given(d(6, 4), 0, d.below(6, 3, 4), d(3, 4), reduce="add"))
        for end in ("", "_")
    },
    "selu": _floats(lambda d: d.given(d(5, 7))),
    "selu_": _floats(lambda d: d.given(d(5, 7))),
    "square": lambda d: d.given(d(5, 7)),
    "square_": lambda d: d.given(d(5, 7)),
    "sum.IntList_out": lambda d: d.given(d(5, 7), [1], out=torch.empty(5, dtype=d.dtype if d.floats else torch.int64)),
    "sum.out": lambda d: d.given(d(5, 7), out=torch.empty((), dtype=d.dtype if d.floats else torch.int64)),
    "tile": lambda d: d.given(d(3, 4), [2, 3]),
    "unfold_backward": _floats(lambda d: d.given(d(3, 4, 3), [3, 9], 1, 3, 2)),
    "uniform_": _floats(lambda d: d.given(d(100, 100), 1.0, 3.0)),
    "upsample_nearest3d": _floats(lambda d: d.given(d(1, 2, 3, 4, 5), [6, 4, 9])),
    "var": _floats(lambda d: d.given(d(5, 7))),
    "var.dim": _floats(lambda d: d.given(d(5, 7), [1])),
    "vstack": lambda d: d.given([d(5, 7), d(3, 7)]),
    "where.self_out": lambda d: d.given(d(5, 7) > 0, d(5, 7), d(5, 7), out=d(5, 7)),
    "zero": lambda d: d.given(d(5, 7)),
}


def _normal(d: Drawn, kind: str) -> CALL:
    means, deviations = torch.full((100, 100), 2.0).to(d.dtype), torch.full((100, 100), 3.0).to(d.dtype)
    first, second = kind.split("_")
    return d.given(means if first == "Tensor" else 2.0, deviations if second == "Tensor" else 3.0)


def _scaled_softmax_backward(grad: torch.Tensor, found: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.ops.aten._softmax_backward_data(grad, found, -1, found.dtype) * scale


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: Any) -> torch.Tensor:
    q, k, v = (one.transpose(1, 2).float() for one in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def _gather_backward(
    grad: torch.Tensor, like: torch.Tensor, dim: int, index: torch.Tensor, sparse: bool
) -> torch.Tensor:
    return torch.zeros_like(like).scatter_add(dim, index, grad)


# What the CPU computes in place of an operator that it, or ATen, does not have.
INSTEAD: dict[str, Any] = {
    "_conv_depthwise2d": lambda x, w, size, *rest: torch.nn.functional.conv2d(x, w, *rest, groups=x.shape[1]),
    "_flash_attention_forward": _attention,
    "bitwise_left_shift": torch.bitwise_left_shift,
    "bitwise_right_shift": torch.bitwise_right_shift,
    "copysign": torch.copysign,
    "embedding_backward": lambda *args: torch.ops.aten.embedding_dense_backward(*args[:-1]),
    "gather_backward": _gather_backward,
    "greater.out": torch.ops.aten.gt.Tensor_out,
    "max_pool2d_backward": lambda grad, x, at, *rest: torch.ops.aten.max_pool2d_with_indices_backward(
        grad, x, *rest, at
    ),
    "new_full.Tensor": lambda x, size, value: x.new_full(size, value.item()),
    "nll_loss_nd_backward": torch.ops.aten.nll_loss2d_backward,
    "nll_loss_nd_forward": torch.ops.aten.nll_loss_forward,
    "scaled_softmax_forward": lambda x, scale: (x.float() * scale).softmax(-1),
    "scaled_softmax_backward": _scaled_softmax_backward,
}


def _is_normal(x: torch.Tensor, mean: float = 0.0, deviation: float = 1.0) -> bool:
    x = x.double()
    return abs(float(x.mean()) - mean) < 0.05 * deviation and abs(float(x.std()) / deviation - 1) < 0.05


# Of random numbers, what they are. Ten thousand are drawn.
RANDOM: dict[str, Any] = {
    "bernoulli_.float": lambda x: (
        set(x.double().unique().tolist()) == {0, 1} and abs(float(x.double().mean()) - 0.3) < 0.03
    ),
    "exponential_": lambda x: bool((x >= 0).all()) and abs(float(x.double().mean()) - 0.5) < 0.03,
    "multinomial": lambda x: x.shape == (4, 500) and bool(((x >= 0) & (x < 50)).all()),
    "native_dropout": lambda x, kept: abs(float(kept.double().mean()) - 0.7) < 0.03 and bool(((x == 0) | kept).all()),
    "normal_": lambda x: _is_normal(x, 2, 3),
    **{f"normal.{kind}": lambda x: _is_normal(x, 2, 3) for kind in ("Tensor_float", "Tensor_Tensor", "float_Tensor")},
    **{name: _is_normal for name in ("randn", "randn_like")},
    **{
        name: lambda x: (
            float(x.min()) >= 0 and float(x.max()) <= 1 and abs(float(x.double().std()) - math.sqrt(1 / 12)) < 0.01
        )
        for name in ("rand", "rand_like")
    },
    "randperm": lambda x: x.sort().values.tolist() == list(range(1000)) and x.tolist() != list(range(1000)),
    "uniform_": lambda x: float(x.min()) >= 1 and float(x.max()) <= 3 and abs(float(x.double().mean()) - 2) < 0.03,
}

# What orders equal elements as it likes, with the place of the dimension among its arguments.
UNORDERED = {"sort": 1, "topk": 2}
