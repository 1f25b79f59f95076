"""Suites over PyTorch's databases of operators, modules and optimizers: a case is an entry in a dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch

from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.checker import Checker, all_warnings


class Run:
    """The checks of one entry in one dtype."""

    def __init__(self, entry: Any, dtype: torch.dtype, device: torch.device, seed: int) -> None:
        self.entry = entry
        self.dtype = dtype
        self.seed = seed
        self.checker = Checker(device, seed)

    def outcome(self) -> Outcome:
        """Run all checks; the message has the first failure of each."""
        raise NotImplementedError


class DatabaseSuite:
    """A subclass sets ``name``, ``checks`` and ``dtypes``, and defines ``entries`` and ``has``."""

    name: str
    checks: type[Run]
    dtypes: Sequence[str]
    """The dtypes of a run that names none."""

    @cached_property
    def entries(self) -> dict[str, Any]:
        """The database by the cases' names."""
        raise NotImplementedError

    def has(self, entry: Any, dtype: torch.dtype) -> bool:
        """Whether there is a case of an entry in a dtype."""
        raise NotImplementedError

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        """Yield the cases, dtype by dtype."""
        for dtype in self.dtypes if dtypes is None else dtypes:
            for name, entry in self.entries.items():
                if self.has(entry, getattr(torch, dtype)):
                    yield Case(self.name, name, dtype)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Run all checks of one entry and dtype."""
        with all_warnings():
            return self.made(case, device, seed).outcome()

    def made(self, case: Case, device: str, seed: int) -> Any:
        """The checks of a case."""
        assert case.dtype is not None
        return self.checks(self.entries[case.name], getattr(torch, case.dtype), torch.device(device), seed)
