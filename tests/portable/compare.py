"""What the tests of compiled kernels share: dtypes, operands on the device, and comparisons with the CPU."""

import pytest
import torch

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
NUMBERS = FLOATS + INTEGERS
ALL = [*NUMBERS, torch.bool]
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.float64: 1e-9}


def each(every, *short):
    """Parameters of a test: all but the ``short`` ones (default: the first) are marked long."""
    every = list(every)
    short = short or every[:1]
    return [
        pytest.param(one, id=str(one).removeprefix("torch."), marks=() if one in short else pytest.mark.long)
        for one in every
    ]


def cases(table, is_short=lambda name, dtype: dtype == torch.float32):
    """Parameters of a test: each name of a table with each of its dtypes; those that are not short are marked long."""
    return [
        pytest.param(
            name,
            one,
            id=f"{name}-{str(one).removeprefix('torch.')}",
            marks=() if is_short(name, one) else pytest.mark.long,
        )
        for name, every in table.items()
        for one in every
    ]


def real(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def on(device, value):
    """A tensor on the device, with its strides and offset; each tensor of a list or a tuple."""
    if isinstance(value, torch.Tensor):
        memory = torch.empty(0, dtype=value.dtype).set_(value.detach().untyped_storage())
        return memory.to(device).as_strided(value.shape, value.stride(), value.storage_offset())
    return [on(device, one) for one in value] if isinstance(value, (list, tuple)) else value


def same(got, expected, tolerance=TOLERANCES, *, strides=True):
    """A result is the CPU's in dtype, shape, strides and values; each of several results.

    Args:
        tolerance: relative and absolute; by dtype, 0 for a dtype that it does not have.
        strides: False: those of fewer than two elements may differ.
    """
    if not isinstance(expected, torch.Tensor):
        for one, other in zip(got, expected, strict=True):
            same(one, other, tolerance, strides=strides)
        return
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.stride() == expected.stride() or (not strides and expected.numel() < 2)
    wide = tolerance.get(expected.dtype, 0) if isinstance(tolerance, dict) else tolerance
    torch.testing.assert_close(got.cpu(), expected, rtol=wide, atol=wide, equal_nan=True)


def with_gradients(function, place, *arguments, leaves=None, weights=(-1, 2)):
    """The result of a function of tensors or other values, and the gradients of the first ``leaves``; None has none.

    ``weights``: the first and the last gradient of the result's elements.
    """
    given = [one.to(place).detach() if isinstance(one, torch.Tensor) else one for one in arguments]
    wanted = [one.requires_grad_() for one in given[:leaves] if one is not None]
    y = function(*given)
    y.backward(torch.linspace(*weights, y.numel()).reshape(y.shape).to(place, y.dtype))
    return [y.detach(), *(one.grad for one in wanted)]


def same_with_gradients(device, function, *arguments, tolerance=TOLERANCES, **how):
    """Compare with_gradients() of the device and of the CPU."""
    same(*(with_gradients(function, place, *arguments, **how) for place in (device, "cpu")), tolerance)


def same_error(device, call, *arguments):
    """A call raises on the device what it raises on the CPU: the type and the first line of the message."""
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as expected:
        call(*arguments)
    with pytest.raises(type(expected.value)) as got:
        call(*(one.to(device) if isinstance(one, torch.Tensor) else one for one in arguments))
    texts = [str(error.value).splitlines()[0] for error in (got, expected)]
    assert texts[0].replace(f"{device.type}:0", "cpu").replace(device.type, "cpu") == texts[1]
