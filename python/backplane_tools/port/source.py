"""A file's text with exact places: an edit changes its bytes alone, so comments, layout and line ends stay."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Edit:
    """Replaces the bytes from start to end, of the text in UTF-8."""

    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Place:
    """One place that names CUDA."""

    line: int
    """from 1"""
    column: int
    """from 1, in characters"""
    old: str
    new: str | None
    """what to write; None: it is left"""
    reason: str
    """why it is left, and what to do; empty for what has a replacement"""
    counts: bool = True
    """False: a remark on what does no harm on another device"""


class Source:
    """Decoded once; positions of ``ast`` are bytes of the text in UTF-8, whatever the file's encoding.

    Raises:
        SyntaxError: an unknown encoding.
        UnicodeDecodeError: the bytes are not of the encoding that the file declares.
    """

    def __init__(self, content: bytes) -> None:
        self.encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        self.bom = _BOM if content.startswith(_BOM) else b""
        if self.bom:
            self.encoding = "utf-8"
        self.text = content[len(self.bom) :].decode(self.encoding)
        self.bytes = self.text.encode("utf-8")
        found = re.search(r"\r\n|\r|\n", self.text)
        self.newline = found[0] if found else "\n"
        self._starts = [0, *(match.end() for match in re.finditer(rb"\r\n|\r|\n", self.bytes))]

    def offset(self, line: int, column: int) -> int:
        """Where a position of ``ast`` is, in bytes."""
        return self._starts[line - 1] + column

    def start(self, node: ast.expr | ast.stmt) -> int:
        """A node's first byte."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        """The byte after a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def segment(self, start: int, end: int) -> str:
        """The text between two places."""
        return self.bytes[start:end].decode("utf-8", "replace")

    def of(self, node: ast.expr | ast.stmt) -> str:
        """A node's own text."""
        return self.segment(self.start(node), self.end(node))

    def column(self, node: ast.expr | ast.stmt) -> int:
        """A node's column in characters, from 1."""
        return len(self.segment(self._starts[node.lineno - 1], self.start(node))) + 1

    def opening(self, call: ast.Call) -> int | None:
        """The byte after the parenthesis that opens a call's arguments; None if the function itself is in some."""
        begin = self.end(call.func)
        between = re.compile(rb"(?:[ \t\f]|\\?(?:\r\n|\r|\n)|#[^\r\n]*)*\(").match(self.bytes, begin)
        return between.end() if between else None

    def by_keyword(self, call: ast.Call, opening: int, keywords: tuple[str, ...]) -> list[Edit] | None:
        """Edits that give a call's arguments by keyword; None if one but the first has parentheses or a comment."""
        edits, after = [], opening
        for number, (argument, keyword) in enumerate(zip(call.args, keywords, strict=False)):
            start = self.start(argument)
            bare = self.segment(after, start).strip() in ("", ",")
            if number and not bare:
                return None
            place = start if bare else opening
            edits.append(Edit(place, place, f"{keyword}="))
            after = self.end(argument)
        return edits

    def apply(self, edits: list[Edit], start: int = 0, end: int | None = None) -> str:
        """The text between two places with the edits that lie there. They do not overlap."""
        parts, here = [], start
        for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
            assert edit.start >= here, "edits overlap"
            parts += [self.bytes[here : edit.start].decode("utf-8"), edit.new]
            here = edit.end
        parts.append(self.bytes[here:end].decode("utf-8"))
        return "".join(parts)

    def encoded(self, text: str) -> bytes:
        """A whole text as the file's bytes."""
        return self.bom + text.encode(self.encoding)
