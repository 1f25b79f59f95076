"""Writes the tables of docs/ecosystem.md.

They are read from docs/ecosystem.json, which `make test-ecosystem` writes, and tests/ecosystem/flag_gems_wrong.py.

python docs/site/ecosystem.py
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results: written by docs/site/ecosystem.py -->\n", "<!-- end of results -->"
BEGIN_WRONG, END_WRONG = "<!-- FlagGems: written by docs/site/ecosystem.py -->\n", "<!-- end of FlagGems -->"
WRONG = runpy.run_path(str(DOCS.parent / "tests/ecosystem/flag_gems_wrong.py"))["WRONG"]


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


def wrong_table(wrong: list[tuple[str, str, dict[str, str]]]) -> str:
    """A row for what is wrong and the dtypes in which it is."""
    lines = ["| operators | dtypes | what happens | whose it is |", "|---|---|---|---|"]
    for what, whose, operators in wrong:
        by_dtypes: dict[str, list[str]] = {}
        for name, dtypes in operators.items():
            by_dtypes.setdefault(", ".join(dtypes.split()), []).append(f"`{name}`")
        lines += [f"| {', '.join(names)} | {dtypes} | {what} | {whose} |" for dtypes, names in by_dtypes.items()]
    return "\n".join(lines) + "\n"


def written(page: str, results: dict[str, Any]) -> str:
    """The page with the tables in their places."""
    tables = (BEGIN, END, table(results)), (BEGIN_WRONG, END_WRONG, wrong_table(WRONG))
    for begin, end, text in tables:
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        assert found
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


if __name__ == "__main__":
    path = DOCS / "ecosystem.md"
    found = json.loads((DOCS / "ecosystem.json").read_text(encoding="utf-8"))
    path.write_text(written(path.read_text(encoding="utf-8"), found), encoding="utf-8")
