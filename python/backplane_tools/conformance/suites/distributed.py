"""The device's process groups by torch's own tests of them: one case per test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from backplane_tools.conformance import torchs_distributed
from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.process import Child


class DistributedSuite:
    """Runs them in child processes, as many ranks as there are devices, between 2 and 4."""

    name = "distributed"

    def __init__(self) -> None:
        self._server: Child | None = None

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        for test in torchs_distributed.names():
            yield Case(self.name, test)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        if self._server is None or not self._server.is_alive:
            self._server = Child(f"{torchs_distributed.__name__}:serve", device.partition(":")[0], stdout=2)
        self._server.send(case.name)
        try:
            status, text = self._server.receive()
        except EOFError:
            return Outcome("fail", f"the process that runs the tests ended with {self._server.process.wait()}")
        if status == "pass":
            return Outcome("pass", checks={"test": 1})
        raised = re.findall(r"^[\w.]*(?:Error|Exception|Exit)\b.*", text, re.MULTILINE)  # the last of a rank
        message = next((line for line in raised if not line.startswith("RuntimeError: Process ")), text)
        return Outcome(status, message.split("\n")[0], text if status == "fail" else "")
