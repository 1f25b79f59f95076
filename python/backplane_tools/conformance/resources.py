"""How many worker processes this machine takes, and how much of it each may have."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_WORKER = 3 * 2**30  # what a worker with all of torch's operator database takes, at most, on well-behaved cases
_LEAST = 2 * 2**30


def default_jobs() -> int:
    """One a processor, as far as memory goes."""
    free = _available()
    return max(1, min(_processors(), free // _WORKER if free else _processors()))


def default_memory(jobs: int) -> int:
    """A worker's limit in bytes: its share of what is free now, and no less than what a sound one needs."""
    return max(_LEAST, int(0.9 * _available()) // max(1, jobs)) if _available() else 0


def worker_threads(jobs: int) -> dict[str, str]:
    """The environment that keeps workers from taking each other's processors; what is set already stays."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, _processors() // max(1, jobs)))}


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _available() -> int:
    with suppress(OSError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    return 0
