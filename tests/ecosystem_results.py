"""A pytest plugin: what the tests of libraries found, by module, with versions, for the table of docs/ecosystem.md.

``pytest -p ecosystem_results --results docs/ecosystem.json tests/ecosystem``. A module's libraries are its
``LIBRARIES``, else the one in its name, ``test_accelerate.py``; with none it is not in the file. Modules that a run
does not try, or of which it leaves tests out, keep their results::

    {"test_accelerate": {"libraries": {"accelerate": "1.15.0"}, "torch": "2.13.0", "what": "of its docstring",
                         "passed": 12, "failed": 0, "skipped": 0}}
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path


def pytest_addoption(parser):
    parser.addoption("--results", type=Path, metavar="FILE", help="write what was found of each library, as JSON")


def pytest_configure(config):
    if config.getoption("--results"):
        config.pluginmanager.register(Results(config.getoption("--results").absolute()), "ecosystem_results_writer")


class Results:
    """Counts by module."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.modules = {}
        self.counts: dict[str, Counter[str]] = {}
        self.partial: set[str] = set()

    def pytest_deselected(self, items):
        self.partial |= {Path(item.module.__file__).stem for item in items}

    def pytest_collection_modifyitems(self, items):
        self.modules = {Path(item.module.__file__).stem: item.module for item in items}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.counts.setdefault(Path(report.fspath).stem, Counter())[report.outcome] += 1

    def pytest_sessionfinish(self):
        found = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        for name, counts in self.counts.items():
            module = self.modules[name]
            libraries = getattr(module, "LIBRARIES", (name.removeprefix("test_"),))
            if name in self.partial or not libraries:
                continue
            found[name] = {
                "libraries": {library: version(library.replace("_", "-")) for library in libraries},
                "torch": version("torch").split("+")[0],
                "what": (module.__doc__ or "").strip().split("\n")[0],
                **{outcome: counts[outcome] for outcome in ("passed", "failed", "skipped")},
            }
        self.path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
