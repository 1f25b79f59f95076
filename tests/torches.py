"""Runs `make test-torch` for one version of torch after another, with one table at the end: `make test-torch-all`.

The output of each is in build/torch/<version>.log. A version that cannot be installed is a failure like others.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
_PART = re.compile(r"^(passed|FAILED \(-?\d+\)) +\d+ s  (.+)$", re.MULTILINE)


def run(version: str, log: Path) -> int:
    """Run one, and return its exit status."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        words = ["make", "-C", str(ROOT), "test-torch", f"TORCH=torch=={version}"]
        return subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, check=False).returncode


def parts(log: Path) -> dict[str, str]:
    """What tests/run.py said of each part; nothing if it did not come to an end."""
    _, found, summary = log.read_text(encoding="utf-8", errors="replace").rpartition("\n==== summary\n")
    return {name: state for state, name in _PART.findall(summary)} if found else {}


def main(versions: list[str]) -> int:
    """Run all; 1 if one failed."""
    results = {}
    for version in versions:
        log = ROOT / "build" / "torch" / f"{version}.log"
        print(f"torch {version}: {log.relative_to(ROOT)}", flush=True)
        begin = time.monotonic()
        results[version] = (run(version, log), parts(log), time.monotonic() - begin)
    names = list(dict.fromkeys(name for _, states, _ in results.values() for name in states))
    table = Table("torch", "state", "minutes", *names)
    for version, (status, states, seconds) in results.items():
        state = "passed" if status == 0 else "FAILED" if states else "FAILED before the tests"
        table.add_row(version, state, f"{seconds / 60:.0f}", *(states.get(name, "-") for name in names))
    Console(width=max(80, 22 * (3 + len(names)))).print(table)
    return int(any(status for status, _, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
