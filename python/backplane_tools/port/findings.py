"""Collects the places and the edits of one file, and compares each edit with the text that it replaces."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence

from backplane_tools.port.source import Edit, Place, Source
from backplane_tools.port.target import Target
from backplane_tools.port.tree import Tree

_NO_TORCH = "torch is not imported where this is evaluated: import it, or name the device by --device"
_NOT_EXACT = "written over several lines or in a string: replace it by hand"


class Findings:
    """What the rules share: the text, its tree, the target; and what they found."""

    def __init__(self, source: Source, tree: Tree, target: Target) -> None:
        self.source, self.tree, self.target = source, tree, target
        self.places: list[Place] = []
        self.edits: list[Edit] = []

    def leave(self, node: ast.expr | ast.stmt, reason: str, counts: bool = True) -> None:
        """A place that stays as it is."""
        self._add(node, None, reason, counts)

    def leave_text(self, line: int, column: int, text: str, reason: str) -> None:
        """The same for what is no part of the tree, at a line and a column from 1."""
        self.places.append(Place(line, column, text, None, reason))

    def replace(self, node: ast.expr | ast.stmt, edits: Sequence[Edit | None]) -> None:
        """A place that changes by these edits; it is left if one is None, whose text is not where it should be."""
        known = [edit for edit in edits if edit is not None]
        if len(known) < len(edits) or not self._fits_fstring(node, known):
            self.leave(node, _NOT_EXACT)
            return
        self.edits += known
        self._add(node, known, "", True)

    def torch(self, node: ast.expr | ast.stmt) -> str | None:
        """The program's name for torch at a node; without one the place is left."""
        name = self.tree.torch_at(node)
        if name is None:
            self.leave(node, _NO_TORCH)
        return name

    def tail(self, node: ast.Attribute, new: str) -> Edit | None:
        """Replaces an attribute's own name; None if the text there is another, as in f-strings of older Pythons."""
        end = self.source.end(node)
        start = end - len(node.attr.encode())
        return Edit(start, end, new) if self.source.segment(start, end) == node.attr else None

    def whole(self, node: ast.Attribute, new: str) -> Edit | None:
        """Replaces a chain of attributes that is written in one piece."""
        if self.source.of(node) != self.tree.chain(node):
            return None
        return Edit(self.source.start(node), self.source.end(node), new)

    def _fits_fstring(self, node: ast.expr | ast.stmt, edits: list[Edit]) -> bool:
        """Within an f-string no quotes are added, which Python before 3.12 refuses.

        That one places an expression where the string first has its text, which may be prose.
        """
        around = [parent for _, parent in self.tree.ancestors(node) if isinstance(parent, ast.JoinedStr)]
        if not around:
            return True
        old = "".join(self.source.segment(edit.start, edit.end) for edit in edits)
        new = "".join(edit.new for edit in edits)
        once = sys.version_info >= (3, 12) or self.source.of(around[-1]).count(self.source.of(node)) == 1
        return once and all(new.count(mark) <= old.count(mark) for mark in "\"'\\\n#")

    def _add(self, node: ast.expr | ast.stmt, edits: list[Edit] | None, reason: str, counts: bool) -> None:
        start, end = self.source.start(node), self.source.end(node)
        old = " ".join(self.source.segment(start, end).split())
        new = None if edits is None else " ".join(self.source.apply(edits, start, end).split())
        self.places.append(Place(node.lineno, self.source.column(node), old, new, reason, counts))
