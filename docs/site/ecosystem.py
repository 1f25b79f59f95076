"""Writes the table of docs/ecosystem.md out of docs/ecosystem.json, which `make test-ecosystem` writes.

python docs/site/ecosystem.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results: written by docs/site/ecosystem.py -->\n", "<!-- end of results -->"


def table(results: dict[str, Any]) -> str:
    """A row a module of tests: its libraries with versions, what was tested, and how many tests passed."""
    lines = ["| libraries | torch | tests | what |", "|---|---|---|---|"]
    for _, found in sorted(results.items()):
        names = ", ".join(f"{name.replace('_', '-')} {version}" for name, version in sorted(found["libraries"].items()))
        tests = f"{found['passed']} pass"
        tests += f", {found['failed']} **fail**" if found["failed"] else ""
        tests += f", {found['skipped']} left out" if found["skipped"] else ""
        what = found["what"].rstrip(".").replace("|", "\\|")
        lines.append(f"| {names} | {found['torch']} | {tests} | {what} |")
    return "\n".join(lines) + "\n"


def written(page: str, results: dict[str, Any]) -> str:
    """The page with the table in its place."""
    assert BEGIN in page
    assert END in page
    return re.sub(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}",
        lambda _: BEGIN + "\n" + table(results) + "\n" + END,
        page,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    path = DOCS / "ecosystem.md"
    found = json.loads((DOCS / "ecosystem.json").read_text(encoding="utf-8"))
    path.write_text(written(path.read_text(encoding="utf-8"), found), encoding="utf-8")
