"""Checks an operator: everything that torch's opcheck checks, on the renamed device, and more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.testing._internal.optests import OpCheckError

from torch_backplane import _backend
from torch_backplane.ops import registry
from torch_backplane.testing.observe import tensors
from torch_backplane.testing.opchecks import UTILITIES
from torch_backplane.testing.opchecks.advice import advise
from torch_backplane.testing.opchecks.call import Call, Failure, NothingToCheckError, describe
from torch_backplane.testing.opchecks.gradients import requiring_gradients
from torch_backplane.testing.transfer import Transfer


class Report(dict[str, Any]):
    """Utility -> ``"SUCCESS"``, or the exception."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.op = op
        """The operator's name."""
        self.untested: dict[str, str] = {}
        """Utility -> why no sample gave it anything to check, although it succeeded."""

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(result == "SUCCESS" for result in self.values())

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        lines = []
        for name, result in self.items():
            state = "FAILED" if result != "SUCCESS" else "-" if name in self.untested else "ok"
            note = str(result).partition("\n")[0] if result != "SUCCESS" else self.untested.get(name, "")
            lines.append(f"  {name:{width}}  {state:6}  {note}".rstrip())
        return "\n".join([self.op, *lines])


def check_op(
    op: Any,
    samples: Any,
    *,
    test_utils: str | Sequence[str] | None = None,
    raise_exception: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    reference: Callable[..., Any] | None = None,
    device: str | torch.device | None = None,
) -> Report:
    """Check an operator on the backend's device against the CPU.

    The samples are not changed. One whose tensors all lie on the CPU is moved to the device; one that has a tensor on
    the device is not moved. If no sample has a tensor that requires grad, gradients are checked for all inputs
    that the operator's formula has one for.

    Args:
        op: an OpOverload, a packet with one overload or a default one, what ``torch.library.custom_op`` or
            ``torch_backplane.ops.custom_op`` made, or a qualified name.
        samples: a list of argument tuples, of ``(args, kwargs)``, or of torch's ``SampleInput``; or one tuple.
        test_utils: the utilities to run, of :data:`torch_backplane.testing.opchecks.UTILITIES`; None or ``"ALL"``: all.
        raise_exception: raise at the first failure; else the exceptions are in the result.
        rtol: relative tolerance of values, but not of finite differences; without one, as in
            ``torch.testing.assert_close``.
        atol: absolute tolerance; it and ``rtol`` come together.
        reference: computes on CPU tensors what the operator computes on the device; None: its own CPU kernel does.
        device: where samples are moved to; None: the current device.

    Returns:
        For each utility ``"SUCCESS"`` or the exception.

    Raises:
        OpCheckError: a utility failed. The message has the code to add.
        ValueError: the arguments are not as above.
    """
    overload = _overload(op)
    name = registry.name_of(overload)
    overload._dispatch_cache.clear()  # tracing caches kernels, even if others are registered later
    utilities = _utilities(test_utils)
    if (rtol is None) != (atol is None):
        raise ValueError(f"check_op({name}): rtol and atol come together; give both or none")
    calls = [Call(overload, *_moved(sample, device), rtol, atol, reference) for sample in _samples(overload, samples)]
    report = Report(name)
    problem = _first_problem(calls)
    if problem is None and not any(t.requires_grad for call in calls for t in call.tensors):
        calls = [requiring_gradients(call) for call in calls]
    for utility in utilities:
        error = problem or _run(utility, calls, report)
        report[utility] = "SUCCESS" if error is None else error
        if error is not None and raise_exception:
            raise error
    return report


def _run(utility: str, calls: list[Call], report: Report) -> OpCheckError | None:
    reasons = []
    for i, call in enumerate(calls):
        try:
            UTILITIES[utility](call)
        except NothingToCheckError as reason:
            reasons.append(str(reason))
        except Exception as error:
            found = OpCheckError(explain(utility, call, error, f"sample {i}"))
            found.__cause__ = error
            return found
    if len(reasons) == len(calls):
        report.untested[utility] = "; ".join(dict.fromkeys(reasons))
    return None


def explain(utility: str, call: Call, error: Exception, sample: str) -> str:
    """A failure's text: which operator, utility and arguments, what was found, and what to write."""
    found = str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
    text = f"{call.name}: {utility} failed on {sample}, {_shown(call)}:\n{found}"
    advice = advise(utility, call, error)
    return f"{text}\nTo do: {advice}" if advice else text


def _shown(call: Call) -> str:
    return f"({', '.join(filter(None, [describe(list(call.args))[1:-1], describe(call.kwargs)]))}) on {call.device}"


def _first_problem(calls: list[Call]) -> OpCheckError | None:
    """The error of a call that does not work at all."""
    for i, call in enumerate(calls):
        copy = call.detached().copy()
        try:
            copy.op(*copy.args, **copy.kwargs)
        except Exception as error:
            found = OpCheckError(
                f"{call.name}: the call itself fails on sample {i}, {_shown(call)}:\n{error}\n"
                "To do: correct the sample, or register a kernel for the device:\n"
                f'  torch.library.register_kernel("{call.name}", "{_backend.device}")'
            )
            found.__cause__ = error
            return found
    return None


def _overload(op: Any) -> torch._ops.OpOverload:
    """The overload of what :func:`check_op` takes; of a name without one, the only one."""
    name = registry.resolve(op)
    if not registry.exists(name) and len(found := registry.overloads(name)) == 1:
        name = found[0]
    return registry.overload(name)


def _utilities(names: str | Sequence[str] | None) -> list[str]:
    wanted = list(UTILITIES) if names in (None, "ALL") else [names] if isinstance(names, str) else list(names or ())
    unknown = [name for name in wanted if name not in UTILITIES]
    if unknown or not wanted:
        raise ValueError(f"test_utils={names!r}: the utilities are {', '.join(UTILITIES)}")
    return wanted


def _samples(op: torch._ops.OpOverload, samples: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    found = [samples] if isinstance(samples, tuple) else list(samples) if isinstance(samples, Iterable) else None
    if isinstance(samples, torch.Tensor) or not found:
        raise ValueError(
            f"check_op({registry.name_of(op)}): samples is a list of argument tuples, such as [(torch.randn(3),)], "
            f"and this is {describe(samples)}"
        )
    return [_sample(op, i, sample) for i, sample in enumerate(found)]


def _sample(op: torch._ops.OpOverload, i: int, sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if all(hasattr(sample, part) for part in ("input", "args", "kwargs")):  # torch's SampleInput
        args, kwargs = (sample.input, *sample.args), sample.kwargs
    elif isinstance(sample, tuple) and [type(part) for part in sample] in ([tuple, dict], [list, dict]):
        args, kwargs = tuple(sample[0]), sample[1]
    elif isinstance(sample, tuple):
        args, kwargs = sample, {}
    else:
        raise ValueError(
            f"check_op({registry.name_of(op)}): sample {i} is {describe(sample)}; it is a tuple of arguments, such as "
            "(torch.randn(3),), or such a tuple and a dict of keyword arguments"
        )
    return args, dict(kwargs)


def _moved(sample: tuple[Any, Any], device: str | torch.device | None) -> tuple[Any, Any]:
    if any(t.device.type != "cpu" for t in tensors(sample)):
        return sample
    target = torch.device(device or _backend.device)
    if target.index is None and target.type != "cpu":
        target = torch.device(target.type, torch.get_device_module(target).current_device())
    moved: tuple[Any, Any] = Transfer(target)(sample)
    return moved
