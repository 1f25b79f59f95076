"""The device's process groups by torch's own tests of them: a case a test."""

from __future__ import annotations

import atexit
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

from backplane_tools.conformance import torchs_distributed
from backplane_tools.conformance.case import Case, Outcome

__all__ = ["DistributedSuite"]


class DistributedSuite:
    """Runs them in processes of its own, as many ranks as there are devices, between 2 and 4."""

    name = "distributed"

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        """A case a test."""
        for test in torchs_distributed.names():
            yield Case(self.name, test)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Run one test."""
        server = self._running(device.partition(":")[0])
        assert server.stdin is not None
        assert server.stdout is not None
        print(case.name, file=server.stdin, flush=True)
        line = server.stdout.readline()
        if not line:
            return Outcome("fail", f"the process that runs the tests ended with {server.wait()}")
        answer = json.loads(line)
        if answer["status"] == "pass":
            return Outcome("pass", checks={"test": 1})
        raised = re.findall(r"^[\w.]*(?:Error|Exception|Exit)\b.*", answer["text"], re.MULTILINE)  # the last of a rank
        message = next((line for line in raised if not line.startswith("RuntimeError: Process ")), answer["text"])
        return Outcome(answer["status"], message.split("\n")[0], answer["text"] if answer["status"] == "fail" else "")

    def _running(self, device: str) -> subprocess.Popen[str]:
        if self._server is None or self._server.poll() is not None:
            command = [sys.executable, "-m", torchs_distributed.__name__, device]
            self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            atexit.register(self._server.kill)
        return self._server
