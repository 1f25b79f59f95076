"""Suites, cases and outcomes: the interface between the conformance kit's engine and its suites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Case", "Outcome", "Suite"]


@dataclass(frozen=True)
class Case:
    """One thing that is checked, and one row of the report. It travels to a worker process by its three names."""

    suite: str
    name: str
    """Unique in its suite and dtype. May hold dots and slashes, no blanks."""
    dtype: str | None = None
    """A torch dtype without ``torch.``, such as ``"float32"``; None where a case has none."""

    @property
    def id(self) -> str:
        """``"ops/add/float32"``: what the command line, ``conformance.toml`` and the reports call it."""
        return "/".join(part for part in (self.suite, self.name, self.dtype) if part is not None)


@dataclass
class Outcome:
    """The result of one case."""

    status: str
    """``"pass"``, ``"fail"`` or ``"skip"`` (nothing was compared; ``message`` says why)."""
    message: str = ""
    """One line: what was expected, what was found."""
    trace: str = ""
    """The traceback of the first failure."""
    checks: dict[str, int] = field(default_factory=dict)
    """Check (``"forward"``, ``"out"``, ``"inplace"``, ``"noncontiguous"``, ``"conj_neg"``, ``"backward"`` ...) ->
    samples that were compared."""
    route: str = ""
    """The operator's way, one of :data:`torch_backplane.ops.ways.WAYS`; empty where the word makes no sense."""
    device_seconds: float = 0
    """Time of the calls that were compared on the device, synchronised; 0 where nothing was timed."""
    cpu_seconds: float = 0
    """Time of the same calls on the CPU."""


class Suite(Protocol):
    """A family of cases. Made once per process, without arguments; a worker runs many cases on one instance."""

    name: str
    """Its key in ``backplane_tools.conformance.suites.SUITES``."""

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        """Yield the cases in a fixed order, touching no device.

        Args:
            dtypes: the dtypes that are asked for; None is the suite's own choice. A suite without dtypes ignores it.
        """

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Run one case; an exception is a failure with that message and traceback.

        The engine has seeded Python, NumPy and torch with ``seed`` before, and isolates crashes, hangs and lost
        memory: a suite needs no process, signal or time limit.

        Args:
            case: one that ``cases`` yields.
            device: such as ``"mydevice:0"``; the backend is imported.
            seed: the case's own, the same in each run with the same ``--seed``.
        """
