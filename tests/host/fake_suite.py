"""A conformance suite whose cases do what a broken backend does: crash, hang, fail, leak. Runs on the CPU."""

from __future__ import annotations

import ctypes
import os
import random
import time
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from backplane_tools.conformance import Case, Outcome


class FakeSuite:
    """Each name is a case; the method of that name runs it. ``FAKE_CASES`` replaces the list."""

    name = "fake"

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        names = os.environ.get("FAKE_CASES", "good,bad,raises,skips,crashes,exits,hangs,draws,last").split(",")
        for name in names:
            yield Case("fake", name)
        for dtype in dtypes or ("float32", "int64"):
            yield Case("fake", "typed", dtype)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        note = os.environ.get("FAKE_LOG")
        if note:
            with Path(note).open("a") as log:
                log.write(f"{case.id} {os.getpid()}\n")
        print("noise on the standard output", flush=True)
        return getattr(self, case.name.split(".")[0])(case, seed)

    def good(self, case: Case, seed: int) -> Outcome:
        return Outcome("pass", checks={"forward": 3, "out": 1}, route="native", device_seconds=2e-3, cpu_seconds=1e-3)

    last = good

    def typed(self, case: Case, seed: int) -> Outcome:
        return Outcome("pass", checks={"forward": 1}, route="fallback")

    def bad(self, case: Case, seed: int) -> Outcome:
        return Outcome("fail", "expected 1, found 2 <b>&amp;</b> \x00 \ud800", "Traceback: here")

    def raises(self, case: Case, seed: int) -> Outcome:
        raise ValueError("the shape\nis wrong")

    def skips(self, case: Case, seed: int) -> Outcome:
        raise unittest.SkipTest("no such hardware")

    def crashes(self, case: Case, seed: int) -> Outcome:
        ctypes.string_at(0)
        return Outcome("pass")

    def exits(self, case: Case, seed: int) -> Outcome:
        os._exit(3)

    def hangs(self, case: Case, seed: int) -> Outcome:
        time.sleep(3600)
        return Outcome("pass")

    def faults(self, case: Case, seed: int) -> Outcome:
        """From here on the device raises, whatever it is asked."""

        def synchronize(*_: object) -> None:
            raise RuntimeError("the device has faulted")

        torch.cpu.synchronize = synchronize
        return Outcome("pass")

    def leaks(self, case: Case, seed: int) -> Outcome:
        held = []
        while True:
            held.append(bytearray(b"x" * 2**26))
            time.sleep(0.02)

    def draws(self, case: Case, seed: int) -> Outcome:
        return Outcome("pass", f"{seed} {random.random()} {torch.rand(()).item()}")

    def waits(self, case: Case, seed: int) -> Outcome:
        """Ends when the file is there: a run that is interrupted is interrupted in the middle of this case."""
        while not Path(os.environ["FAKE_GATE"]).exists():
            time.sleep(0.01)
        return Outcome("pass")
