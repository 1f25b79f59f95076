"""Every operator of PyTorch's own database on DTensors, one sample of each: the CPU's, over Gloo, and the operator's.

A case that torch's DTensor does not support on the CPU is skipped, with its reason.
"""

from __future__ import annotations

import tempfile

from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.process import Child
from backplane_tools.conformance.suites.ops import OpsSuite

DTYPES = ("float32",)
"""The dtypes of a run that names none."""
RANKS = 2
"""Each has its own device if there are as many."""


class DTensorSuite(OpsSuite):
    """Runs them in ranks, processes which stay from one case to the next until one of them fails."""

    name = "dtensor"
    dtypes = DTYPES

    def __init__(self) -> None:
        self.ranks: list[Child] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        if not self.ranks:
            self._folder = tempfile.TemporaryDirectory(prefix="dtensor")
            arguments = [(device, rank, RANKS, self._folder.name) for rank in range(RANKS)]
            serve = "backplane_tools.conformance.dtensor_rank:serve"
            self.ranks = [Child(serve, *each, stdout=2) for each in arguments]
        for rank in self.ranks:
            rank.send((case.name, case.dtype, seed))
        outcomes = [_answer(rank) for rank in self.ranks]
        worst = max(outcomes, key=lambda outcome: ("pass", "skip", "fail").index(outcome.status))
        if worst.status == "fail":
            worst.message = f"rank {outcomes.index(worst)}: {worst.message}"
        if worst.status == "fail" or not all(rank.is_alive for rank in self.ranks):
            for rank in self.ranks:
                rank.close()
            self.ranks = []
            self._folder = None
        return worst


def _answer(rank: Child) -> Outcome:
    """The outcome of a rank, which is preceded by the places of its calls."""
    at = "the start"
    try:
        while not isinstance(said := rank.receive(), Outcome):
            at = said
        return said
    except EOFError:
        text = f"its process ended with {rank.process.wait()} at a call on {at}"
    if at == "the CPU":
        return Outcome("skip", f"torch's DTensor cannot, on the CPU: {text}")
    return Outcome("fail", text)
