"""A program's syntax tree: who is whose parent, and which imported name a chain of attributes is."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def last_name(node: ast.AST) -> str:
    """``"to"`` of ``x.to``, and of ``to``; empty for what is neither a name nor an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _links(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """The first part of a chain of attributes, and their names."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return node, names[::-1]


def _bound(part: ast.stmt) -> list[str]:
    """The names that a statement of a class gives its objects."""
    targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", part)]
    return [last_name(target) or getattr(target, "name", "") for target in targets]


class Tree:
    """Names are resolved by the file's imports; a name that the file also binds otherwise is not resolved.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: what ``ast.parse`` raises.
    """

    def __init__(self, text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's own
            self.module = ast.parse(text)
        self.nodes = list(ast.walk(self.module))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self._names: dict[str, str] = {}
        self._torch: list[tuple[str, ast.stmt]] = []
        self._bind()

    def _bind(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.split(".")[0]
                    self._add(alias.asname or whole, whole, node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._add(alias.asname or alias.name, f"{node.module}.{alias.name}", node)
        for node in self.nodes:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self._forget(node.id)
            elif isinstance(node, ast.arg):
                self._forget(node.arg)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._forget(node.name)

    def _add(self, local: str, dotted: str, statement: ast.Import | ast.ImportFrom) -> None:
        if self._names.setdefault(local, dotted) != dotted:
            self._names[local] = ""  # two meanings
        if dotted == "torch":
            self._torch.append((local, statement))

    def _forget(self, name: str) -> None:
        if self._names.get(name, "torch") != "torch":  # torch is torch, whatever else it is in a corner
            self._names[name] = ""

    def dotted(self, node: ast.AST) -> str:
        """``"torch.cuda.synchronize"`` for a chain of attributes on an imported name; empty for anything else."""
        root, names = _links(node)
        meant = self._names.get(root.id) if isinstance(root, ast.Name) else None
        return ".".join([meant, *names]) if meant else ""

    def chain(self, node: ast.Attribute) -> str:
        """A chain as the file writes it, without space: ``"th.cuda.synchronize"``."""
        root, names = _links(node)
        assert isinstance(root, ast.Name)
        return ".".join([root.id, *names])

    def root(self, node: ast.Attribute) -> str:
        """What the first name of a chain is bound to: ``torch``, or something in it that an import names."""
        return self.dotted(_links(node)[0])

    def sets(self, attribute: str) -> bool:
        """Whether the file defines an attribute or a method of this name."""
        return any(
            (isinstance(node, ast.Attribute) and node.attr == attribute and not isinstance(node.ctx, ast.Load))
            or (isinstance(node, ast.ClassDef) and any(attribute in _bound(part) for part in node.body))
            for node in self.nodes
        )

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Each node on the way up, with its parent."""
        while node in self.parents:
            yield node, self.parents[node]
            node = self.parents[node]

    def functions(self, node: ast.AST) -> list[ast.AST]:
        """The functions in whose body a node is; a default is evaluated outside of its function."""
        found: list[ast.AST] = []
        for child, parent in self.ancestors(node):
            if isinstance(parent, _FUNCTIONS) and not isinstance(child, ast.arguments):
                found.append(parent)
        return found

    def torch_at(self, node: ast.expr | ast.stmt) -> str | None:
        """What the program calls torch where ``node`` is evaluated; None if it has not imported it there."""
        around = self.functions(node)
        for local, statement in self._torch:
            where = self.functions(statement)
            in_order = statement.lineno <= node.lineno
            if (not where and (around or in_order)) or (where and where[0] in around and in_order):
                return local
        return None
