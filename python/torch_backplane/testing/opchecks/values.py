"""The kernel's values: against the CPU reference, on empty inputs, under autocast."""

from __future__ import annotations

import torch

from torch_backplane.testing.compare import Difference, Rules, compare_observations, describe
from torch_backplane.testing.observe import Observation, observe
from torch_backplane.testing.opchecks.call import SEED, Call, Failure, NothingToCheckError
from torch_backplane.testing.transfer import Transfer


def cpu_reference(call: Call) -> None:
    """Device and CPU agree: values, dtypes, shapes, strides, aliasing, and what is written to arguments."""
    if call.device.type == "cpu":
        raise NothingToCheckError("the call is on the CPU")
    if not call.has_reference():
        raise Failure("there is no CPU reference: the operator has no CPU kernel")
    on_cpu = call.detached().on_cpu()
    _compare(call.detached(), _expected(on_cpu), "the device's answer is not the CPU reference's")
    if call.has_kernel("PrivateUse1", "CompositeImplicitAutograd", "CompositeExplicitAutograd"):
        return
    raise NothingToCheckError("the device has no kernel: the fallback computed on the CPU")


def _expected(on_cpu: Call) -> Observation:
    return observe(on_cpu.call_reference_with, on_cpu.inputs, "cpu", SEED)


def _compare(call: Call, expected: Observation, what: str) -> None:
    """Raise Failure unless the call on its device does what the reference did."""
    copies = Transfer(call.device, source=call.device.type)
    found = observe(lambda args, kwargs: call.op(*args, **kwargs), call.copy().inputs, call.device, SEED, copies)
    if found.error is not None:
        raise Failure(f"{what}: {describe(found.error)}") from found.error
    moves_all = all(tensor.device.type != "cpu" for tensor in call.tensors)  # else the places of arguments differ
    try:
        compare_observations(expected, found, call.device, Rules(values=False, arguments=moves_all))
    except Difference as error:
        raise Failure(f"{what}: {error}") from error
    if not call.is_random:
        to_cpu = Transfer("cpu", source=call.device.type)
        values = to_cpu((found.value, found.arguments))
        call.close(values, (expected.value, expected.arguments), what)


def empty(call: Call) -> None:
    """If the CPU reference accepts an input without elements, the device does, with the same results.

    Every size of the inputs is set to 0 in turn, in all of them, and then all sizes at once. What the reference rejects
    is not tried on the device.
    """
    on_cpu = call.detached().on_cpu()
    sizes = sorted({size for tensor in on_cpu.tensors for size in tensor.shape if size})
    variants = [{size} for size in sizes] + ([set(sizes)] if len(sizes) > 1 else [])
    taken = 0
    for zeros in variants:
        tensors = [t.new_empty([0 if size in zeros else size for size in t.shape]) for t in on_cpu.tensors]
        smaller = [t if a.shape == t.shape else a for a, t in zip(tensors, on_cpu.tensors, strict=True)]
        host = on_cpu.with_tensors(smaller)
        expected = _expected(host)
        if expected.error is not None:
            continue
        taken += 1
        shapes = ", ".join(str(list(tensor.shape)) for tensor in smaller)
        _compare(_moved(host, call), expected, f"inputs of shape {shapes}")
    if not taken:
        raise NothingToCheckError("the CPU reference takes no empty inputs")


def _moved(host: Call, call: Call) -> Call:
    """A CPU call's tensors on the devices of another call's."""
    places = [tensor.device for tensor in call.tensors]
    return call.with_tensors([t.to(device) for t, device in zip(host.tensors, places, strict=True)])


def autocast(call: Call) -> None:
    """Under autocast the operator returns the same, even if its inputs have several dtypes.

    They do under autocast: activations have its dtype, parameters float32.
    """
    device = call.device.type
    call = call.detached()
    written = call.is_written()
    wide = [i for i, t in enumerate(call.tensors) if t.dtype is torch.float32 and not written[i]]
    if not wide:
        raise NothingToCheckError("no input is float32")
    if call.is_random:
        raise NothingToCheckError("its random numbers depend on the dtype")
    expected = call.copy().run()
    low = torch.get_autocast_dtype(device)
    variants: list[tuple[str, list[int]]] = [("float32 inputs", [])]
    if len(wide) > 1:
        variants += [("the first input", wide[:1]), ("all inputs but the first", wide[1:])]
    for what, lowered in variants:
        tensors = [t.to(low) if i in lowered else t for i, t in enumerate(call.copy().tensors)]
        which = f"under autocast, {what}{' in ' + str(low).removeprefix('torch.') if lowered else ''}"
        try:
            with torch.autocast(device, dtype=low):
                found = call.with_tensors(tensors).run()
        except Exception as error:
            raise Failure(f"{which}: {describe(error)}") from error
        if len(found) != len(expected):
            raise Failure(f"{which}: {len(found)} results instead of {len(expected)}")
        for a, b in zip(found, expected, strict=True):
            _near(call, a, b, low, which)


def _near(call: Call, found: torch.Tensor, expected: torch.Tensor, low: torch.dtype, what: str) -> None:
    if not expected.is_floating_point():
        call.close(found, expected, what)
        return
    if torch.finfo(found.dtype).bits > torch.finfo(expected.dtype).bits:
        raise Failure(f"{what}: a result of dtype {found.dtype}, without autocast {expected.dtype}")
    scale = expected.abs().nan_to_num(0, 0, 0).max().item() if expected.numel() else 0.0
    eps = torch.finfo(low).eps
    rtol, atol = max(8 * eps, call.rtol or 0), max(4 * eps * scale, call.atol or 0)
    call.close(found.to(expected.dtype), expected, what, rtol=rtol, atol=atol)
