"""The documents of this repository, their tables and their code blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path.relative_to(ROOT).as_posix() for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])]


def text_of(page: str) -> str:
    """A page's text."""
    return (ROOT / page).read_text(encoding="utf-8")


def table_rows(page: str) -> list[list[str]]:
    """The cells of every row of every table, headings left out."""
    rows = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text_of(page), re.MULTILINE):
        for line in table.splitlines()[2:]:
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


@dataclass
class Block:
    """A fenced block: its language and content, in the order of the page."""

    language: str
    content: str
    line: int


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page."""
    text = text_of(page)
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], text.count("\n", 0, match.start()) + 1) for match in found]


def code(page: str, language: str = "python") -> list[str]:
    """The content of a page's blocks in a language."""
    return [block.content for block in blocks(page) if block.language == language]
