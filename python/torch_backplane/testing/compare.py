"""Whether the device's answer is the CPU's: values, dtype, shape, strides, device, sharing, errors, warnings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.utils._pytree import tree_flatten

from torch_backplane.testing.observe import Observation


class Difference(AssertionError):
    """The device's answer is not the CPU's."""


class ValueDifference(Difference):
    """Only the numbers differ."""


class FormDifference(Difference):
    """A tensor has another shape, dtype or strides."""


@dataclass(frozen=True)
class Rules:
    """What must be equal."""

    values: bool = True
    strides: bool = True
    aliases: bool = True
    arguments: bool = True
    """The arguments after the call."""
    near: bool = True
    """Values equal except for the last bits, if the same CPU code computes both; else torch.testing's tolerances."""
    precision: torch.dtype | None = None
    """The coarsest dtype that contributes to the values, which may be coarser than theirs."""
    tolerance: tuple[float, float] = (0.0, 0.0)
    """The least (rtol, atol) where not ``near``."""
    chain: bool = False
    """Where not ``near``: whether several kernels follow each other, so that differences grow and large numbers cancel:
    rtol is greater, and of the largest number of the call. Else a quarter of the dtype's precision is."""
    scale: float = 0.0
    """That largest number."""
    spread: float = 0.0
    """The least atol where not ``near``: of a chain in half precision, twice the CPU's own error, since a sum may
    cancel numbers that are larger than any argument or result."""

    def but(self, **changes: Any) -> Rules:
        """The rules with some changed."""
        return replace(self, **changes)


# In units of the dtype's precision, relative to the element or to the tensor's largest. If the same code computes both,
# they differ only where BLAS chooses another path for another alignment.
_NEAR = 4


def compare_observations(cpu: Observation, found: Observation, device: torch.device, rules: Rules) -> None:
    """Raise Difference unless the call on the device did what the call on the CPU did."""
    if cpu.error is not None or found.error is not None:
        _compare_errors(cpu, found, device)
        return
    compare(cpu.value, found.value, device, rules, "result")
    if rules.aliases:
        _compare_sharing(cpu, found)
    if rules.arguments:
        for i, (expected, argument) in enumerate(zip(cpu.arguments, found.arguments, strict=True)):
            compare(expected, argument, device, rules, f"argument {i} after the call")
    resized = [sorted(text for text in seen.warnings if "was resized" in text) for seen in (cpu, found)]
    if resized[0] != resized[1]:
        raise Difference(f"warnings: expected {resized[0]}, found {resized[1]}")


def compare(expected: Any, actual: Any, device: torch.device, rules: Rules, what: str) -> None:
    """Raise Difference unless two trees are equal. Tensors are compared in everything that a program can see.

    Args:
        expected: the CPU's.
        actual: the device's.
        device: where the tensors of ``actual`` must lie.
        rules: what must be equal.
        what: its name in messages.
    """
    left, left_tree = tree_flatten(expected)
    right, right_tree = tree_flatten(actual)
    if left_tree != right_tree:
        raise Difference(f"{what}: expected {left_tree}, found {right_tree}")
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        name = what if len(left) == 1 else f"{what}[{i}]"
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            _compare_tensors(a, b, device, rules, name)
        else:
            _compare_objects(a, b, device, rules, name)


def same_text(text: str, device: torch.device) -> str:
    """A message in which the device's name is replaced by the CPU's."""
    text = re.sub(rf"\btorch\.{device.type}\.", "torch.", text)  # torch.mydevice.FloatTensor
    kind = "(?<![A-Za-z])(Autograd|Sparse|SparseCsr|Quantized|NestedTensor|)"  # SparseCPU, CPUFloatType
    text = re.sub(rf"{kind}({device.type}|privateuseone|PrivateUse1|CPU|cpu)(:\d+)?(?![a-z_])", r"\1cpu", text)
    return re.sub(r"(?s)\bValue: .*", "", text).strip()  # the value of a wrong argument, printed


def _compare_errors(cpu: Observation, found: Observation, device: torch.device) -> None:
    if cpu.error is None:
        raise Difference(f"raised {describe(found.error)}") from found.error
    if found.error is None:
        raise Difference(f"accepted what the CPU refuses with {describe(cpu.error)}")
    same = type(cpu.error) is type(found.error)
    if not same or same_text(str(cpu.error), device) != same_text(str(found.error), device):
        raise Difference(f"refused with {describe(found.error)} instead of {describe(cpu.error)}") from found.error


def describe(error: BaseException | None) -> str:
    """An error as one line, without the dispatcher's advice on missing kernels."""
    text = str(error).split(" This could be because the operator doesn't exist for this backend")[0]
    return shorten(f"{type(error).__name__}: {text}")


def shorten(text: str) -> str:
    """A text as one line of at most 400 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 400 else text[:400] + "..."


def _compare_sharing(cpu: Observation, found: Observation) -> None:
    if cpu.aliases != found.aliases:
        raise Difference(f"sharing: expected (argument, storage) {cpu.aliases}, found {found.aliases}")
    if cpu.moved != found.moved:
        raise Difference(f"data_ptr: arguments that moved: expected {cpu.moved}, found {found.moved}")


def _compare_tensors(a: torch.Tensor, b: torch.Tensor, device: torch.device, rules: Rules, what: str) -> None:
    target = device if a.device.type == "cpu" else a.device
    if b.device != target:
        raise Difference(f"{what}: device: expected {target}, found {b.device}")
    for name in ("layout", "is_nested", "is_quantized", "requires_grad", "is_leaf", "dtype"):
        if getattr(a, name) != getattr(b, name):
            kind = FormDifference if name == "dtype" else Difference
            raise kind(f"{what}: {name}: expected {getattr(a, name)}, found {getattr(b, name)}")
    if a.is_nested:
        for i, (x, y) in enumerate(zip(a.detach().unbind(), b.detach().unbind(), strict=True)):
            _compare_tensors(x, y, device, rules, f"{what}.unbind()[{i}]")
        return
    if a.shape != b.shape:
        raise FormDifference(f"{what}: shape: expected {tuple(a.shape)}, found {tuple(b.shape)}")
    if a.layout is not torch.strided:
        for part in _PARTS[a.layout]:
            _compare_tensors(part(a.detach()), part(b.detach()), device, rules, f"{what} ({a.layout})")
        return
    if rules.strides and strides_of(a) != strides_of(b):
        raise FormDifference(f"{what}: strides of {tuple(a.shape)}: expected {a.stride()}, found {b.stride()}")
    if not rules.values:
        return
    if a.is_quantized:
        if str(a.qscheme()) != str(b.qscheme()):
            raise Difference(f"{what}: qscheme: expected {a.qscheme()}, found {b.qscheme()}")
        a, b = a.dequantize(), b.dequantize()
    with torch.no_grad():
        x, y = (t.detach().cpu().resolve_conj().resolve_neg() for t in (a, b))
        _compare_values(x, y, rules, what)


_PARTS: dict[torch.layout, tuple[Any, ...]] = {
    torch.sparse_coo: (torch.Tensor._indices, torch.Tensor._values),
    torch.sparse_csr: (torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values),
    torch.sparse_bsr: (torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values),
    torch.sparse_csc: (torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values),
    torch.sparse_bsc: (torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values),
    torch._mkldnn: (torch.Tensor.to_dense,),  # type: ignore[attr-defined]
}


def strides_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that matter: those of dimensions longer than one, of a tensor with elements."""
    if tensor.numel() == 0:
        return ()
    return tuple(int(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1)


def _compare_values(a: torch.Tensor, b: torch.Tensor, rules: Rules, what: str) -> None:
    if a.dtype is torch.bool:  # whose bytes may differ from 0 and 1
        a, b = a.view(torch.uint8) != 0, b.view(torch.uint8) != 0
    if a.dtype not in _EXACT_DTYPES and torch.equal(a, b):
        return
    if not (a.is_floating_point() or a.is_complex()):
        if not torch.equal(a, b):
            raise ValueDifference(f"{what}: {_worst(a, b, a != b)}")
        return
    x, y = (t.to(WIDER.get(t.dtype, t.dtype)) for t in (a, b))
    precision = max(filter(None, (a.dtype, rules.precision)), key=lambda dtype: torch.finfo(dtype).eps)
    if rules.near:
        eps = torch.finfo(precision).eps
        finite = x.abs()[torch.isfinite(x)]
        rtol, atol = _NEAR * eps, _NEAR * eps * (float(finite.max()) if finite.numel() else 0)
    else:
        rtol, atol = map(max, default_tolerances(precision), rules.tolerance)
        if rules.chain:
            rtol = min(64 * rtol, max(rtol, 1e-3))
        atol = max(atol, rules.spread, (rtol if rules.chain else torch.finfo(precision).eps / 4) * rules.scale)
    close = torch.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
    if not bool(close.all()):
        raise ValueDifference(f"{what}: {_worst(x, y, ~close)} (rtol {rtol:.1e}, atol {atol:.1e})")


WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    **{
        getattr(torch, name): torch.float32
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
        if hasattr(torch, name)
    },
}
"""The dtypes that are compared in a wider one."""
_EXACT_DTYPES = {dtype for dtype in WIDER if dtype not in (torch.float16, torch.bfloat16)}  # torch.equal lacks them


def _worst(a: torch.Tensor, b: torch.Tensor, wrong: torch.Tensor) -> str:
    x, y = a[wrong], b[wrong]
    first, second = x.flatten()[0].item(), y.flatten()[0].item()
    return f"{x.numel()} of {a.numel()} values differ, such as {first} expected, {second} found"


_PLAIN = (bool, int, torch.Size, torch.dtype, torch.layout, torch.memory_format)


def _compare_objects(a: Any, b: Any, device: torch.device, rules: Rules, what: str) -> None:
    if type(a) is not type(b):
        raise Difference(f"{what}: expected a {type(a).__name__}, found a {type(b).__name__}")
    if isinstance(a, (torch.device, str)):
        if same_text(str(a), device) != same_text(str(b), device):
            raise Difference(f"{what}: expected {a!r}, found {b!r}")
    elif isinstance(a, (float, complex)):
        if rules.values:
            _compare_values(torch.tensor(a), torch.tensor(b), rules, what)
    elif isinstance(a, _PLAIN) and a != b and rules.values:
        raise Difference(f"{what}: expected {a!r}, found {b!r}")
