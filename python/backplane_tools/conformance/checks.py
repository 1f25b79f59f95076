"""Suites made of methods: each is a case, which returns if the device is right and raises if it is not."""

from __future__ import annotations

import threading
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from backplane_tools.conformance.case import Case, Outcome

__all__ = ["DTYPES", "FunctionSuite", "close", "equal", "expect", "in_threads", "raises", "second", "skip"]

# What every device stores and copies, whatever it computes in.
DTYPES = tuple(
    getattr(torch, name)
    for name in "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()
)


class FunctionSuite:
    """A suite of methods that take the device; a subclass sets ``name``.

    Each public method of the subclass is a case: ``def copy__pinned(self, device)`` is ``copy.pinned``.
    """

    name: str
    module: Any
    """``torch.<device>``, while a case runs."""

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        """The methods, in the order of the source."""
        for name, member in vars(type(self)).items():
            if callable(member) and not name.startswith("_"):
                yield Case(self.name, name.replace("__", "."))

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Run one method; device and streams are as before afterwards."""
        target = torch.device(device)
        self.module = torch.get_device_module(target.type)
        try:
            getattr(self, case.name.replace(".", "__"))(target)
        finally:
            if target.type != "cpu":
                for index in range(self.module.device_count()):
                    torch.accelerator.set_stream(self.module.default_stream(index))
                torch.accelerator.set_device_index(target.index or 0)
        return Outcome("pass", checks={"check": 1})


def second(device: torch.device) -> torch.device:
    """Another device; skips the case if there is only one."""
    count = torch.get_device_module(device.type).device_count()
    if count < 2:
        skip("one device")
    return torch.device(device.type, ((device.index or 0) + 1) % count)


def in_threads(function: Callable[[int], Any], count: int = 1) -> list[Any]:
    """What a function of a number returns for 0 to ``count - 1``, each in a new thread."""
    results: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: function(i)})) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = sorted(set(range(count)) - results.keys())
    expect(not failed, f"of {count} threads, {failed} raised; the tracebacks are on the standard error")
    return [results[i] for i in range(count)]


def expect(condition: object, message: str) -> None:
    """Fail unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def equal(found: object, wanted: object, what: str) -> None:
    """Fail unless two values, not tensors, are equal."""
    if found != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, found {found!r}")


def close(found: torch.Tensor, wanted: torch.Tensor, what: str = "the result") -> None:
    """Fail unless a tensor, on whatever device, has the values, dtype and shape of one on the CPU."""
    torch.testing.assert_close(found.cpu(), wanted, equal_nan=True, msg=lambda text: f"{what}: {text}")


@contextmanager
def raises(error: type[BaseException] | tuple[type[BaseException], ...], text: str, what: str) -> Iterator[None]:
    """Fail unless the block raises.

    Args:
        error: the exception's class, or several.
        text: what its message must contain.
        what: what is done in the block, for the failure's message.
    """
    try:
        yield
    except error as raised:
        expect(text in str(raised), f"{what}: expected {text!r} in the message, found {str(raised)!r}")
    else:
        wanted = error if isinstance(error, type) else error[0]
        raise AssertionError(f"{what} raised nothing; expected {wanted.__name__}")


def skip(reason: str) -> None:
    """End the case: the device does not support what it checks."""
    raise unittest.SkipTest(reason)
