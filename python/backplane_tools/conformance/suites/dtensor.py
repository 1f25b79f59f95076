"""Every operator of PyTorch's own database on DTensors, one sample of each: the CPU's, over Gloo, and the operator's.

What torch's DTensor cannot do on the CPU is nobody's fault here: such a case is skipped, with its reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from backplane_tools.conformance import dtensor_rank
from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.suites.ops import OpsSuite

__all__ = ["DTYPES", "RANKS", "DTensorSuite"]

DTYPES = ("float32",)
"""The dtypes of a run that names none."""
RANKS = 2
"""Each has a device of its own where there are as many."""


class DTensorSuite(OpsSuite):
    """Runs them in processes of its own, which stay from one case to the next until one of them fails."""

    name = "dtensor"

    def __init__(self) -> None:
        self.ranks: list[_Rank] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        """Yield the cases, dtype by dtype."""
        return super().cases(DTYPES if dtypes is None else dtypes)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Run one operator and dtype on all ranks."""
        self._start(device)
        for rank in self.ranks:
            rank.ask({"name": case.name, "dtype": case.dtype, "seed": seed})
        outcomes = [rank.answer() for rank in self.ranks]
        worst = max(outcomes, key=lambda outcome: ("pass", "skip", "fail").index(outcome.status))
        if worst.status == "fail":
            worst.message = f"rank {outcomes.index(worst)}: {worst.message}"
        if worst.status == "fail" or not all(rank.is_alive for rank in self.ranks):
            self._stop()
        return worst

    def _start(self, device: str) -> None:
        if self.ranks:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="dtensor")
        self.ranks = [_Rank(device, rank, self._folder.name) for rank in range(RANKS)]

    def _stop(self) -> None:
        for rank in self.ranks:
            rank.kill()
        self.ranks = []
        if self._folder is not None:
            self._folder.cleanup()

    def __del__(self) -> None:
        self._stop()


class _Rank:
    """One process, seen from outside."""

    def __init__(self, device: str, rank: int, folder: str) -> None:
        command = [sys.executable, "-m", dtensor_rank.__name__, device, str(rank), str(RANKS), folder]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, question: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            print(json.dumps(question), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return  # the answer says so

    def answer(self) -> Outcome:
        assert self.process.stdout is not None
        at = "the start"
        for line in self.process.stdout:
            answer = json.loads(line)
            if "status" in answer:
                return Outcome(**answer)
            at = answer["at"]
        text = f"its process ended with {self.process.wait()} at a call on {at}"
        if at == "the CPU":
            return Outcome("skip", f"torch's DTensor cannot, on the CPU: {text}")
        return Outcome("fail", text)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
