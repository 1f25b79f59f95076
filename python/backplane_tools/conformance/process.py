"""Child processes that answer questions over a pipe: the workers of a run, and the ranks that a suite needs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from backplane_tools.conformance.case import Case
from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.record import Row

STACKS = signal.SIGUSR1
"""Prints the stacks of all threads into the log: sent before a worker that hangs is killed."""

_START_S = 600.0  # importing a suite's half of torch on a machine under load
_POLL_S = 0.2
_LONGEST_LOG = 12_000


class Child:
    """A process of this Python with this one's ``sys.path``. It ends with this object.

    Args:
        function: ``module:function``, called with the pipe and the arguments.
        arguments: plain values.
        options: of ``subprocess.Popen``.
    """

    def __init__(self, function: str, *arguments: object, **options: Any) -> None:
        self.pipe, its_end = Pipe()
        module, name = function.split(":")
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from multiprocessing.connection import Connection; "
            f"from {module} import {name}; {name}(Connection({its_end.fileno()}), *{arguments!r})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, pass_fds=(its_end.fileno(),), **options
        )
        its_end.close()
        weakref.finalize(self, self.process.kill)

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self.process.poll() is None

    def send(self, question: object) -> None:
        """Ask; if the process has ended, ``receive`` raises."""
        with suppress(OSError):
            self.pipe.send(question)

    def receive(self) -> Any:
        """What it sends next.

        Raises:
            EOFError: it has ended.
        """
        try:
            return self.pipe.recv()
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel's driver: nothing can end it, the run goes on
            self.process.wait(timeout=10)
        self.pipe.close()


def questions(pipe: Connection) -> Iterator[Any]:
    """Yield what the parent asks, in the child, until the parent has ended or closed the pipe."""
    os.set_inheritable(pipe.fileno(), False)
    while True:
        try:
            yield pipe.recv()
        except (EOFError, OSError):
            return


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


class Worker(Child):
    """A process that runs cases. Used by one thread; ``stop`` may be set by another.

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
        super().__init__(
            "backplane_tools.conformance.worker:main",
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **setup.env},
            start_new_session=True,  # Ctrl-C is the parent's to handle, and a kill takes its children along
        )
        with suppress(OSError):  # the system that runs out of memory kills a worker and not the run
            Path(f"/proc/{self.process.pid}/oom_score_adj").write_text("1000")
        try:
            self.about: dict[str, Any] = self._ask(_START_S, "open", setup.device, setup.package, setup.where)
        except Died as died:
            raise ConformanceError(f"the worker process cannot start: {died}\n{died.log}".rstrip()) from None
        except BaseException:
            self.close()
            raise

    def cases(self, suite: str, dtypes: list[str] | None) -> list[Case]:
        """A suite's cases."""
        try:
            cases: list[Case] = self._ask(_START_S, "cases", suite, dtypes)
            return cases
        except Died as died:
            raise ConformanceError(f"the suite {suite} cannot list its cases: {died}\n{died.log}".rstrip()) from None

    def run(self, case: Case, seed: int, timeout: float) -> Row:
        """Run a case.

        Raises:
            Died: the process has ended; this object cannot be used any more.
        """
        self._ask(_START_S, "prepare", case.suite)
        row: Row
        row, self.usable = self._ask(timeout, "run_and_look", case, seed)
        self.served += 1
        return row

    def resident(self) -> int:
        """Bytes of memory that the process holds; 0 where the system does not say."""
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return 0

    def close(self) -> None:
        """End the process and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        super().close()
        self._log.close()

    def _ask(self, timeout: float, *question: object) -> Any:
        self.send(question)
        deadline = time.monotonic() + timeout
        while not self.pipe.poll(max(0.0, min(deadline - time.monotonic(), _POLL_S))):
            if self.stop.is_set():
                self.close()
                raise Stopped
            if time.monotonic() >= deadline:
                raise self._hang(timeout)
            if 0 < self.setup.memory < (held := self.resident()):
                raise self._end(
                    "crash", f"killed: it held {_gib(held)} of memory, and --memory allows {_gib(self.setup.memory)}"
                )
        try:
            answer = self.receive()
        except EOFError:
            raise self._death() from None
        if isinstance(answer, ConformanceError):
            self.close()
            raise answer
        return answer

    def _death(self) -> Died:
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return self._end("crash", "the worker process closed its pipe")
        if code >= 0:
            return self._end("crash", f"the process ended with exit status {code}")
        named = -code in list(signal.Signals)
        return self._end("crash", f"killed by {signal.Signals(-code).name if named else f'signal {-code}'}")

    def _hang(self, timeout: float) -> Died:
        self.process.send_signal(STACKS)
        time.sleep(0.3)  # for the stacks to be written
        return self._end("timeout", f"did not end within {timeout:g} s")

    def _end(self, status: str, message: str) -> Died:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LONGEST_LOG))
        log = self._log.read().decode(errors="replace").strip()
        if self.served:
            message += f", after {self.served} other cases in its process"
        self.close()
        return Died(status, message, log)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
