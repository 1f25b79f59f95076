"""``Worlds``: ranks that stay up from one case to the next, and a report of each of them when one fails.

A rank is forked from a server process that has imported torch: a world costs a fraction of a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
LIMIT = 180  # the timeout of a case, in seconds


@dataclass(frozen=True)
class Kind:
    """What ranks are: how many, on which device, with which variables."""

    device: str
    engine: str = ""  # of the device's backend; empty: its default
    size: int = 2
    env: tuple[tuple[str, str], ...] = ()
    env_of_first: tuple[tuple[str, str], ...] = ()  # of rank 0 alone
    device_id: bool = False
    named: bool = False  # backends of the CPU and the device by name: then a bound group has one of the CPU, too
    timeout: int = 120  # of the process group, in seconds
    leave: bool = False  # end without destroy_process_group()


@dataclass
class Answer:
    """The outcome of one rank's call. Without result and error its process has ended, or the call has timed out."""

    result: Any = None
    error: str = ""
    ended: bool = False
    late: bool = False

    @property
    def is_good(self) -> bool:
        return not (self.error or self.ended or self.late)


class Server:
    """The process that forks ranks. Owned by Worlds; one caller at a time."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair()
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "rank.py"), str(theirs.fileno())], env=environment, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self.answers = self.control.makefile("r")

    def fork(self, request: dict[str, Any], files: Sequence[int]) -> int:
        """A rank's process id."""
        socket.send_fds(self.control, [json.dumps(request).encode()], list(files))
        return int(self.answers.readline())

    def wait(self, pid: int) -> int:
        """The exit status of a rank that has ended or is about to."""
        self.control.sendall(json.dumps({"wait": pid}).encode())
        return int(self.answers.readline())

    def close(self) -> None:
        self.control.shutdown(socket.SHUT_RDWR)
        self.process.wait()
        self.answers.close()
        self.control.close()


@dataclass
class Process:
    """One rank, seen from outside."""

    pid: int
    lines: IO[str]
    socket: socket.socket
    log: Path
    status: int | None = None


@dataclass
class World:
    """The ranks of one process group."""

    kind: Kind
    server: Server
    folder: Path
    processes: list[Process] = field(default_factory=list)

    def start(self, imports: Sequence[str] = ()) -> None:
        """Fork the ranks and wait until all have joined."""
        for rank in range(self.kind.size):
            ours, theirs = socket.socketpair()
            log = self.folder / f"log{rank}"
            request = {
                "rank": rank,
                "size": self.kind.size,
                "device": self.kind.device,
                "device_id": self.kind.device_id,
                "named": self.kind.named,
                "timeout": self.kind.timeout,
                "leave": self.kind.leave,
                "folder": str(self.folder),
                "env": self._environment(rank),
                "imports": list(imports),
            }
            with log.open("w") as file:
                pid = self.server.fork(request, [theirs.fileno(), file.fileno()])
            theirs.close()
            self.processes.append(Process(pid, ours.makefile("rw"), ours, log))
        self._demand([self._answer(process, time.monotonic() + LIMIT) for process in self.processes])

    def _environment(self, rank: int) -> dict[str, str]:
        """A rank's variables. The simulated driver has a device for each rank, as torch wants of a host."""
        prefix = self.kind.device.upper()
        given = {**os.environ, **dict(self.kind.env), **(dict(self.kind.env_of_first) if rank == 0 else {})}
        options = [given.get(f"{prefix}_OPTIONS", "")]
        if f"{prefix}_DRIVER" not in os.environ:
            options.append(f"devices={self.kind.size}")
        ours = {f"{prefix}_OPTIONS": ",".join(filter(None, options)), "OMP_NUM_THREADS": "1"}
        if self.kind.engine:
            ours[f"{prefix}_DIST"] = self.kind.engine
        return {**given, **ours}

    def run(self, check: Callable[..., Any], **arguments: Any) -> list[Any]:
        """Run a check on all ranks; what each returned. One that fails is an AssertionError with its traceback."""
        answers = self.each(check, **arguments)
        self._demand(answers)
        return [answer.result for answer in answers]

    def each(self, check: Callable[..., Any], **arguments: Any) -> list[Answer]:
        """Run a check on all ranks; the outcome of each."""
        line = json.dumps({"name": f"{check.__module__}:{check.__name__}", "arguments": arguments}) + "\n"
        for process in self.processes:
            process.lines.write(line)
            process.lines.flush()
        end = time.monotonic() + LIMIT
        return [self._answer(process, end) for process in self.processes]

    def _answer(self, process: Process, end: float) -> Answer:
        if not select.select([process.socket], [], [], max(0.0, end - time.monotonic()))[0]:
            return Answer(late=True)
        try:
            line = process.lines.readline()
        except ConnectionResetError:
            line = ""
        return Answer(**json.loads(line)) if line else Answer(ended=True)

    def _demand(self, answers: list[Answer]) -> None:
        if all(answer.is_good for answer in answers):
            return
        for process, answer in zip(self.processes, answers, strict=True):
            if answer.late:
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(0.5 if any(answer.late for answer in answers) else 0)  # for the stacks of those that are late
        statuses = self.kill()
        report = []
        for rank, (process, answer, status) in enumerate(zip(self.processes, answers, statuses, strict=True)):
            error = f"ended with status {status}" if answer.ended else answer.error
            what = "timed out" if answer.late else error or "has no error"
            report.append(f"rank {rank}: {what}\n{process.log.read_text()}")
        raise AssertionError("\n".join(report))

    def kill(self) -> list[int]:
        """End all ranks at once; their exit statuses."""
        for process in self.processes:
            if process.status is None:
                os.kill(process.pid, signal.SIGKILL)
        return self._collect()

    def close(self) -> list[int]:
        """Let all ranks destroy their group and end; their exit statuses. One that does not end in time is killed."""
        end = time.monotonic() + LIMIT
        for process in self.processes:
            if process.status is None:
                process.socket.shutdown(socket.SHUT_WR)
        for process in self.processes:
            if process.status is None and not self._answer(process, end).ended:
                os.kill(process.pid, signal.SIGKILL)
        return self._collect()

    def _collect(self) -> list[int]:
        for process in self.processes:
            if process.status is None:
                process.status = self.server.wait(process.pid)
                process.lines.close()
                process.socket.close()
        return [process.status for process in self.processes if process.status is not None]

    @property
    def is_up(self) -> bool:
        return bool(self.processes) and all(process.status is None for process in self.processes)

    def logs(self) -> str:
        """What all ranks have printed."""
        return "\n".join(f"rank {rank}:\n{p.log.read_text()}" for rank, p in enumerate(self.processes))


class Worlds:
    """The worlds of a test session. Two stay up; one that failed is made anew."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.worlds: dict[Kind, World] = {}

    @contextlib.contextmanager
    def own(self, kind: Kind, imports: Sequence[str] = (), statuses: Sequence[int] = ()) -> Iterator[World]:
        """A world that no other case uses. Its ranks must end with these statuses; default: 0."""
        world = self._make(kind, imports)
        try:
            yield world
        except BaseException:
            world.kill()
            shutil.rmtree(world.folder)
            raise
        self.end(world, statuses)

    def _make(self, kind: Kind, imports: Sequence[str]) -> World:
        if self.server is None:
            self.server = Server()
        world = World(kind, self.server, Path(tempfile.mkdtemp(prefix="world")))
        world.start(imports)
        return world

    def get(self, kind: Kind, imports: Sequence[str] = ()) -> World:
        """The world of a kind."""
        world = self.worlds.pop(kind, None)
        if world is not None and not world.is_up:
            shutil.rmtree(world.folder)
            world = None
        if world is None:
            while len(self.worlds) > 1:
                self._end_first()
            world = self._make(kind, imports)
        self.worlds[kind] = world
        return world

    def end(self, world: World, expected: Sequence[int] = ()) -> None:
        """Close a world, whose ranks must end with these statuses; default: 0."""
        statuses, logs = world.close(), world.logs()
        shutil.rmtree(world.folder)
        wanted = list(expected) or [0] * len(statuses)
        assert statuses == wanted, f"the ranks ended with {statuses}, not {wanted}\n{logs}"

    def _end_first(self) -> None:
        world = self.worlds.pop(next(iter(self.worlds)))
        if world.is_up:
            self.end(world)
        else:  # its case has failed
            shutil.rmtree(world.folder)

    def close(self) -> None:
        while self.worlds:
            self._end_first()
        if self.server is not None:
            self.server.close()
