"""The driver against the contract of ``backplane/driver.h``: one case per check of ``backplane-check-driver``."""

from __future__ import annotations

import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path

from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.errors import ConformanceError


class DriverSuite:
    """Runs the checker in a child process on the driver that the backend has loaded, with its options and shims."""

    name = "driver"

    def __init__(self) -> None:
        self._checker: Path | None = None

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        done = subprocess.run([self._program(), "--list"], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            if words := line.split():
                yield Case(self.name, words[0])

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        from torch_backplane import _backend, driver

        if not _backend.loaded():
            return Outcome("skip", f"{device} is not a backend of this SDK: it has no driver of this kind")
        info = driver.info()
        # The checker completes a driver by `emulate` where it must, as the core does.
        shims = [f"--shim={shim}" for shim in info.shims if shim != "emulate"]
        options = [f"--options={info.options}"] if info.options else []
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            words = [str(self._program()), f"--only={case.name}", f"--junit={report}", *options, *shims, info.path]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if not report.is_file():
                return Outcome("fail", f"the checker ended with {done.returncode}", done.stdout + done.stderr)
            row = next(row for row in ET.parse(report).getroot().iter("testcase") if row.get("name") == case.name)
        skipped, failure = row.find("skipped"), row.find("failure")
        if skipped is not None:
            return Outcome("skip", skipped.get("message", ""))
        if failure is not None:
            return Outcome("fail", failure.get("message", ""), f"{failure.text or ''}\n\n{done.stdout}{done.stderr}")
        return Outcome("pass", checks={"check": 1})

    def _program(self) -> Path:
        if self._checker is None:
            import click

            from backplane_tools.cli.check_driver import compiled_program, installed_program

            try:
                self._checker = installed_program() or compiled_program()
            except click.ClickException as error:
                raise ConformanceError(f"the suite driver needs the contract checker: {error.message}") from error
        return self._checker
