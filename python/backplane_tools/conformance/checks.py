"""Suites made of functions: a case a function, which returns if the device is right and raises if it is not."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from backplane_tools.conformance.case import Case, Outcome

__all__ = ["DTYPES", "Check", "Checks", "FunctionSuite", "close", "equal", "expect", "raises", "skip"]

Check = Callable[[torch.device], None]

# What every device stores and copies, whatever it computes in.
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)


class Checks(dict[str, Check]):
    """The functions of a suite by name."""

    def case(self, name: str) -> Callable[[Check], Check]:
        """Add a function."""

        def add(function: Check) -> Check:
            if name in self:
                raise ValueError(f"{name} is there twice")
            self[name] = function
            return function

        return add


class FunctionSuite:
    """A suite of functions; a subclass sets ``name`` and ``checks``."""

    name: str
    checks: Checks

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        """A case a function, in the order of the source."""
        for name in self.checks:
            yield Case(self.name, name)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Run the function; device and streams are as before afterwards."""
        target = torch.device(device)
        module = torch.get_device_module(target.type)
        try:
            self.checks[case.name](target)
        finally:
            if target.type != "cpu":
                for index in range(module.device_count()):
                    torch.accelerator.set_stream(_default_stream(module, index))
                torch.accelerator.set_device_index(target.index or 0)
        return Outcome("pass", checks={"check": 1})


def _default_stream(module: Any, index: int) -> torch.Stream:
    stream: torch.Stream = module.default_stream(index)
    return stream


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


class raises:
    """A context manager that fails unless its block raises.

    Args:
        error: the exception's class, or several.
        text: what its message must contain.
        what: what is done in the block, for the failure's message.
    """

    def __init__(self, error: type[BaseException] | tuple[type[BaseException], ...], text: str, what: str) -> None:
        self.errors = error if isinstance(error, tuple) else (error,)
        self.text, self.what = text, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if kind is None:
            raise AssertionError(f"{self.what} raised nothing; expected {self.errors[0].__name__}")
        if not issubclass(kind, self.errors):
            return False
        expect(self.text in str(error), f"{self.what}: expected {self.text!r} in the message, found {str(error)!r}")
        return True


def skip(reason: str) -> None:
    """End the case: this device cannot do what it checks."""
    raise unittest.SkipTest(reason)
