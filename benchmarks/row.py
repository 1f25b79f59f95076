"""One line of the report: what is measured, under which configuration of the device, and its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Configuration:
    """A kind of process that rows are measured in.

    Attributes:
        name: as the report prints it.
        options: those of the simulated device.
        variables: of the environment, by their names without the device's: ``("KERNELS", "off")``.
    """

    name: str
    options: str
    variables: tuple[tuple[str, str], ...] = ()


INLINE = Configuration("unified, inline", "kind=unified,stream=inline")
ASYNC = Configuration("unified, async", "kind=unified,stream=async")
DISCRETE = Configuration("discrete, inline", "kind=discrete,stream=inline")
# A kernel that does not compile ends the measurement.
COMPILED = Configuration("compiled", "kind=unified,stream=inline", (("KERNELS", "strict"),))
# The same, with streams that run beside the calling thread.
COMPILED_ASYNC = Configuration("compiled, async", "kind=unified,stream=async", COMPILED.variables)
# Without them: what has no kernel of the vendor's is the CPU's.
NO_KERNELS = Configuration("fallback", INLINE.options, (("KERNELS", "off"),))
NO_KERNELS_DISCRETE = Configuration("fallback, discrete", DISCRETE.options, NO_KERNELS.variables)
HOST = Configuration("", "")  # needs no device in the measuring process
CONFIGURATIONS = (INLINE, ASYNC, DISCRETE, COMPILED, COMPILED_ASYNC, NO_KERNELS, NO_KERNELS_DISCRETE)
# For a device that has no such options: every row once.
AS_IS = Configuration("as is", "")


@dataclass
class Result:
    """What a row's measurement found. ``best`` and ``median`` are in ``unit``; ``device`` and ``cpu`` in seconds."""

    best: float
    median: float
    unit: str = "x"
    device: float | None = None
    cpu: float | None = None


@dataclass(frozen=True)
class Row:
    """A measurement.

    Attributes:
        name: as the report prints it.
        measure: takes the device's name; runs in a process of the right configuration.
        budget: what the best value must not exceed, or must reach with ``at_least``; None is for information.
        configurations: each gives one line.
        budget_of_items: the budget on a target whose groups have several items, if it is another.
    """

    name: str
    measure: Callable[[str], Result]
    budget: float | None = None
    at_least: bool = False
    configurations: tuple[Configuration, ...] = (INLINE,)
    budget_of_items: float | None = None

    def budget_here(self) -> float | None:
        """The budget on the device of the process."""
        if self.budget_of_items is None:
            return self.budget
        from torch_backplane import compiler

        return self.budget if compiler.target().group_size == 1 else self.budget_of_items

    def within(self, result: Result) -> bool | None:
        """Whether the budget holds; None without one."""
        budget = self.budget_here()
        if budget is None:
            return None
        return result.best >= budget if self.at_least else result.best <= budget


@dataclass
class Line:
    """A row that was measured, or the error that it ended in."""

    row: str
    configuration: str
    budget: float | None = None
    at_least: bool = False
    within: bool | None = None
    error: str | None = None
    result: Result | None = field(default=None)

    @classmethod
    def measured(cls, row: Row, configuration: Configuration, device: str) -> Line:
        """Measure; an error becomes the line's text, so that the other rows still run."""
        line = cls(row.name, configuration.name, row.budget, row.at_least)
        try:
            line.result = row.measure(device)
        except Exception as error:
            line.error = f"{type(error).__name__}: {error}"
        else:
            line.budget, line.within = row.budget_here(), row.within(line.result)
        return line

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Line:
        """The inverse of :meth:`to_json`."""
        result = values.pop("result")
        return cls(**values, result=Result(**result) if result else None)
