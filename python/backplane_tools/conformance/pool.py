"""Worker processes, one thread each to serve it, over one queue of cases."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from backplane_tools.conformance.case import Case
from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.process import Died, Setup, Stopped, Worker
from backplane_tools.conformance.record import Row

_RESTARTS = 3  # a board may need a moment after a crash


def case_seed(seed: int, case: Case) -> int:
    """The seed of a case, 32 bits: from the run's and the case's id, so that neither order nor shard changes it."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{case.id}".encode(), digest_size=4).digest(), "big")


class Pool:
    """Worker processes.

    Args:
        setup: what they are started with.
        jobs: how many.
        timeout: seconds a case may take.
        recycle: cases after which a worker is replaced, which bounds the memory that it collects.
    """

    def __init__(self, setup: Setup, *, jobs: int = 1, timeout: float = 120, recycle: int = 500) -> None:
        self.setup = setup
        self.jobs = jobs
        self.timeout = timeout
        self.recycle = recycle
        self._stop = threading.Event()
        self._spare: Worker | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # over _spare

    @cached_property
    def about(self) -> dict[str, object]:
        """What is tested, and with what."""
        self._spare = self._spare or Worker(self.setup, self._stop)
        return self._spare.about

    def cases(self, suite: str, dtypes: Sequence[str] | None) -> list[Case]:
        """A suite's cases. Asks a worker, so that this process imports no torch and outlives any import."""
        self._spare = self._spare or Worker(self.setup, self._stop)
        return self._spare.cases(suite, list(dtypes) if dtypes is not None else None)

    def run(self, cases: Iterable[Case], seed: int) -> Iterator[Row]:
        """Run cases, yielding rows as they end. Rows come in another order than cases where there are several workers.

        Raises:
            ConformanceError: workers cannot be started any more.
        """
        todo = deque(cases)
        left = len(todo)
        rows: queue.SimpleQueue[Row | BaseException] = queue.SimpleQueue()
        for _ in range(min(self.jobs, left)):
            spare, self._spare = self._spare, None
            thread = threading.Thread(target=self._serve, args=(spare, todo, seed, rows), daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in range(left):
            row = rows.get()
            if isinstance(row, BaseException):
                raise row
            yield row
        self._join()

    def close(self) -> None:
        """Kill the workers."""
        self._stop.set()
        self._join()
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _serve(self, worker: Worker | None, todo: deque[Case], seed: int, rows: queue.SimpleQueue) -> None:
        try:
            while not self._stop.is_set():
                try:
                    case = todo.popleft()
                except IndexError:
                    break
                worker = worker or self._start()
                row, worker = self._run_one(worker, case, case_seed(seed, case))
                rows.put(row)
            with self._lock:
                if self._spare is None:
                    self._spare, worker = worker, None  # for the next call
        except Stopped:
            return
        except BaseException as error:
            rows.put(error)
        finally:
            if worker is not None:
                worker.close()

    def _run_one(self, worker: Worker, case: Case, seed: int) -> tuple[Row, Worker | None]:
        start = time.perf_counter()
        try:
            row = worker.run(case, seed, self.timeout)
        except Died as died:
            seconds = time.perf_counter() - start
            return Row(died.status, str(died), died.log, case=case, seconds=seconds, seed=seed), None
        grown = 0 < self.setup.memory < 2 * worker.resident()
        if worker.usable and worker.served < self.recycle and not grown:
            return row, worker
        worker.close()
        return row, None

    def _start(self) -> Worker:
        for attempt in range(_RESTARTS):
            try:
                return Worker(self.setup, self._stop)
            except ConformanceError:
                if attempt == _RESTARTS - 1 or self._stop.wait(1 + attempt):
                    raise
        raise AssertionError("unreachable")


class Here:
    """This process as the only worker, for a debugger: a crash or a hang is the run's."""

    def __init__(self, setup: Setup) -> None:
        from backplane_tools.conformance.runner import Runner  # and with it torch

        self._runner = Runner(setup.device, setup.package, setup.where)
        self.about: dict[str, object] = self._runner.about()

    def cases(self, suite: str, dtypes: Sequence[str] | None) -> list[Case]:
        """A suite's cases."""
        return self._runner.cases(suite, dtypes)

    def run(self, cases: Iterable[Case], seed: int) -> Iterator[Row]:
        """Run cases in order."""
        for case in cases:
            yield self._runner.run(case, case_seed(seed, case))

    def close(self) -> None:
        """Nothing is held."""


Workplace = Pool | Here
"""Where cases run."""
