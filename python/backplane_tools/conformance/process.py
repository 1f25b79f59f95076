"""The parent's side of a worker process: starts it, asks it, and says how it died."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.worker import STACKS

__all__ = ["Died", "Setup", "Stopped", "Worker"]

_START_S = 600.0  # importing a suite's half of torch on a machine under load
_POLL_S = 0.2
_LONGEST_LOG = 12_000


class Died(Exception):
    """The worker ended, or was ended, in the middle of a question.

    Args:
        status: ``"crash"`` or ``"timeout"``.
        message: how.
        log: the end of what it printed.
    """

    def __init__(self, status: str, message: str, log: str) -> None:
        super().__init__(message)
        self.status = status
        self.log = log


class Stopped(Exception):
    """The run is being stopped; the worker has been killed."""


@dataclass
class Setup:
    """What every worker of a run is started with."""

    device: str | None = None
    package: str | None = None
    where: dict[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's environment."""
    memory: int = 0
    """Bytes of resident memory after which a worker is killed; 0 is no limit."""


class Worker:
    """A process, from its start to its death. Used by one thread; ``stop`` may be set by another.

    Raises:
        ConformanceError: it cannot start: there is no such device, or the backend does not load.
    """

    def __init__(self, setup: Setup, stop: threading.Event) -> None:
        self.setup = setup
        self.stop = stop
        self.served = 0
        """Cases that it has run."""
        self.usable = True
        """Whether its device can run another; a fault outlives the case."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)  # the worker truncates it before each case
        answers, its_end = os.pipe()
        code = f"import sys; sys.path[:] = {sys.path!r}; from backplane_tools.conformance.worker import main; main("
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{code}{its_end})"],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(its_end,),
            env={**os.environ, **setup.env},
            start_new_session=True,  # Ctrl-C is the parent's to handle, and a kill takes its children along
        )
        os.close(its_end)
        _first_to_die(self.process.pid)
        self._answers = answers
        self._buffer = b""
        try:
            self._send({"device": setup.device, "package": setup.package, "where": setup.where})
            self.about: dict[str, Any] = self._answer(_START_S)["ready"]
        except Died as died:
            self.close()
            raise ConformanceError(f"the worker process cannot start: {died}\n{died.log}".rstrip()) from None
        except BaseException:
            self.close()
            raise

    def cases(self, suite: str, dtypes: list[str] | None) -> list[tuple[str, str | None]]:
        """The (name, dtype) of a suite's cases."""
        try:
            self._send({"list": suite, "dtypes": dtypes})
            return [(name, dtype) for name, dtype in self._answer(_START_S)["cases"]]
        except Died as died:
            raise ConformanceError(f"the suite {suite} cannot list its cases: {died}\n{died.log}".rstrip()) from None

    def run(self, case: tuple[str, str, str | None], seed: int, timeout: float) -> dict[str, Any]:
        """Run a case.

        Raises:
            Died: the process has ended; this object is of no more use.
        """
        self._send({"run": case, "seed": seed})
        self._answer(_START_S)
        answer = self._answer(timeout)
        self.served += 1
        self.usable = answer["usable"]
        row: dict[str, Any] = answer["row"]
        return row

    def resident(self) -> int:
        """Bytes of memory that the process holds; 0 where the system does not say."""
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return 0

    def close(self) -> None:
        """End the process and its children."""
        self._end()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        self._log.close()

    def _send(self, question: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # how it died is told by the answer that does not come
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()

    def _answer(self, timeout: float) -> dict[str, Any]:
        for line in self._lines(time.monotonic() + timeout, timeout):
            answer: dict[str, Any] = json.loads(line)
            if "error" in answer:
                self.close()
                raise ConformanceError(answer["error"])
            return answer
        raise self._death()

    def _lines(self, deadline: float, timeout: float) -> Iterator[bytes]:
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                yield line
                continue
            if self.stop.is_set():
                self.close()
                raise Stopped
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._hang(timeout)
            if 0 < self.setup.memory < (held := self.resident()):
                raise self._kill(
                    "crash", f"killed: it held {_gib(held)} of memory, and --memory allows {_gib(self.setup.memory)}"
                )
            if select.select([self._answers], [], [], min(left, _POLL_S))[0]:
                chunk = os.read(self._answers, 1 << 20)
                if not chunk:
                    return
                self._buffer += chunk

    def _death(self) -> Died:
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return self._kill("crash", "the worker process closed its pipe")
        if code < 0:
            try:
                how = f"killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"killed by signal {-code}"
        else:
            how = f"the process ended with exit status {code}"
        return self._kill("crash", how)

    def _hang(self, timeout: float) -> Died:
        with suppress(ProcessLookupError):
            self.process.send_signal(STACKS)
            time.sleep(0.3)  # for the stacks to be written
        return self._kill("timeout", f"did not end within {timeout:g} s")

    def _end(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel's driver: nobody can end it, the run goes on
            self.process.wait(timeout=10)

    def _kill(self, status: str, message: str) -> Died:
        self._end()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LONGEST_LOG))
        log = self._log.read().decode(errors="replace").strip()
        if self.served:
            message += f", after {self.served} other cases in its process"
        self.close()
        return Died(status, message, log)


def _first_to_die(pid: int) -> None:
    """Let the system that runs out of memory kill a worker and not the run."""
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
