"""``pytest --backplane-conformance``: the conformance kit's cases as items, each run in a worker process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backplane_tools.conformance.case import Case
from backplane_tools.conformance.engine import Plan, gather
from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.expected import Expected
from backplane_tools.conformance.pool import Pool
from backplane_tools.conformance.process import Setup
from backplane_tools.conformance.record import Row
from backplane_tools.conformance.resources import default_memory, worker_threads
from backplane_tools.conformance.selection import Selection


class ConformancePlugin:
    """Adds the items, and owns this pytest process's worker.

    ``conformance.toml`` in the root folder lists the expected failures, as for ``torch-backplane conformance``.
    """

    def __init__(self, config: pytest.Config) -> None:
        words = [word for word in config.getoption("--backplane-conformance").split(",") if word]
        package = config.getoption("--backplane-package") or os.environ.get("BACKPLANE_PACKAGE")
        try:
            selection = Selection.of(words)
            expected = Expected.read_default(Path(config.rootpath))
        except ConformanceError as error:
            raise pytest.UsageError(
                f"--backplane-conformance: {error}. Suites are given as --backplane-conformance=SUITE,SUITE"
            ) from error
        jobs = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self.plan = Plan(selection, expected=expected, repeat=("--package", package) if package else ())
        self.pool = Pool(Setup(None, package, selection.where, worker_threads(jobs), default_memory(jobs)), jobs=1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the items, before ``-k`` and ``-m`` choose."""
        try:
            gathered = gather(self.plan, self.pool)
        except ConformanceError as error:
            raise pytest.UsageError(str(error)) from error
        if gathered.problems:
            raise pytest.UsageError("\n".join(gathered.problems))
        for suite in self.plan.selection.where:
            parent = ConformanceSuite.from_parent(session, name=f"conformance/{suite}", nodeid=f"conformance/{suite}")
            items += [
                ConformanceItem.from_parent(parent, case=case, plugin=self)
                for case in gathered.cases
                if case.suite == suite
            ]

    def pytest_unconfigure(self) -> None:
        """End the worker."""
        self.pool.close()

    def run(self, case: Case) -> Row:
        """Run a case."""
        (row,) = self.pool.run([case], self.plan.seed)
        return self.plan.expected.apply(row)


class ConformanceSuite(pytest.Collector):
    """A suite, as the items' parent; the plugin makes the items."""

    def collect(self) -> Iterator[pytest.Item]:
        """Nothing: pytest is not to collect it again."""
        return iter(())


class Failed(Exception):
    """A row that makes the run fail."""

    def __init__(self, row: Row, command: str) -> None:
        super().__init__(row.message)
        self.row = row
        self.command = command


class ConformanceItem(pytest.Item):
    """A case."""

    def __init__(self, case: Case, plugin: ConformancePlugin, **rest: Any) -> None:
        super().__init__(case.id.removeprefix(f"{case.suite}/"), **rest)
        self.case = case
        self.plugin = plugin
        self.add_marker("conformance")

    def runtest(self) -> None:
        """Run it: passes, skips, is an expected failure, or fails."""
        row = self.plugin.run(self.case)
        self.user_properties += [(key, value) for key, value in vars(row).items() if key in ("route", "seed") and value]
        if row.status == "skip":
            pytest.skip(row.message)
        if row.status == "xfail":
            pytest.xfail(row.reason)
        if row.bad:
            raise Failed(row, self.plugin.plan.command(self.case))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The row's message and trace, and the line that repeats it, in place of this process's traceback."""
        if not isinstance(excinfo.value, Failed):
            return super().repr_failure(excinfo, style)
        row = excinfo.value.row
        return "\n".join(filter(None, [f"{row.status}: {row.message}", row.trace, excinfo.value.command]))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where and what, for pytest's report."""
        return Path(self.config.rootpath) / "conformance.toml", None, self.case.id
