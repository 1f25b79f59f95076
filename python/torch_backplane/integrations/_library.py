"""What the file of a library says: which versions it was tried with, and what is done after which of its modules."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_ABSENT = object()


class Unexpected(Exception):
    """A library has not what its integration stands on; nothing of it stays patched. The text goes into the warning."""


Step = Callable[[Any, "Patch"], str]
"""``step(module, patch)`` arranges a module whose import has ended, and returns what it did, in words."""


class Integration:
    """One library: ``integration`` of a file in this package.

    Args:
        distribution: the library's name on the package index.
        tried: the versions that the tests of it ran with, as a specifier of PEP 440: ``~=1.12.0``.
    """

    def __init__(self, distribution: str, tried: str) -> None:
        self.distribution, self.tried = distribution, tried
        self.modules: dict[str, list[Step]] = {}

    def after(self, module: str) -> Callable[[Step], Step]:
        """Decorate a step that is taken when ``module``, a name such as ``accelerate.state``, has been imported.

        Its import is not caused. A step imports other modules only if the library's module has done so already.
        """

        def add(step: Step) -> Step:
            self.modules.setdefault(module, []).append(step)
            return step

        return add

    def knows(self, version: str) -> bool:
        """Whether the version is one of those tried. Of a version before a release, the release counts."""
        from packaging.specifiers import SpecifierSet
        from packaging.version import InvalidVersion, Version

        try:
            return SpecifierSet(self.tried).contains(Version(version).base_version)
        except InvalidVersion:
            return False


class Patch:
    """Replaces attributes of one library, checked, and puts all of them back if one is not as expected."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._done: list[tuple[Any, str, Any, Any]] = []  # owner, name, before, new

    def __call__(self, owner: Any, name: str, takes: str) -> Callable[[Callable[..., Any]], None]:
        """Decorate what runs in the place of a function, method, property, class method or static method.

        It gets the original in front of the arguments.

        Args:
            owner: a module or a class; the attribute must be its own.
            name: the attribute.
            takes: the parameters that it must begin with, such as ``"self model"``.

        Raises:
            Unexpected: there is no such attribute, or it takes something else.
        """
        found = self._find(owner, name)
        kind = type(found) if isinstance(found, (property, classmethod, staticmethod)) else None
        inner = found.fget if isinstance(found, property) else found.__func__ if kind else found
        if not callable(inner):
            raise Unexpected(f"{_name(owner)}.{name} is not a function")
        if hasattr(inner, "_integration"):  # the library shows one function in two places, or a module was reloaded
            return lambda function: None
        words, parameters = takes.split(), list(inspect.signature(inner).parameters)
        if parameters[: len(words)] != words:
            raise Unexpected(f"{_name(owner)}.{name} takes ({', '.join(parameters)}), not ({', '.join(words)}, ...)")

        def put(function: Callable[..., Any]) -> None:
            @functools.wraps(inner)
            def ours(*args: Any, **kwargs: Any) -> Any:
                return function(inner, *args, **kwargs)

            ours._integration = self._library  # type: ignore[attr-defined]
            if isinstance(found, property):
                self._put(owner, name, property(ours, found.fset, found.fdel, found.__doc__), found)
            else:
                self._put(owner, name, kind(ours) if kind else ours, found)

        return put

    def value(self, owner: Any, name: str, change: Callable[[Any], Any]) -> None:
        """Replace a value by ``change(value)``, which raises Unexpected if it is not what was expected."""
        found = self._find(owner, name)
        self._put(owner, name, change(found), found)

    def undo(self) -> None:
        """Put back what was there, the last change first."""
        while self._done:
            owner, name, before, new = self._done.pop()
            _set(owner, name, before, instead_of=new)

    def _find(self, owner: Any, name: str) -> Any:
        found = vars(owner).get(name, _ABSENT)
        if found is _ABSENT:
            raise Unexpected(f"{_name(owner)} has no {name}")
        return found

    def _put(self, owner: Any, name: str, new: Any, before: Any) -> None:
        self._done.append((owner, name, before, new))
        _set(owner, name, new, instead_of=before)


def _set(owner: Any, name: str, new: Any, instead_of: Any) -> None:
    """Set an attribute, a module's function also where others have imported it from there under its name."""
    setattr(owner, name, new)
    if isinstance(owner, ModuleType) and callable(instead_of):
        for module in list(sys.modules.values()):
            if isinstance(module, ModuleType) and vars(module).get(name) is instead_of:
                setattr(module, name, new)


def _name(owner: Any) -> str:
    module = getattr(owner, "__module__", None)
    return f"{module}.{owner.__qualname__}" if module and hasattr(owner, "__qualname__") else str(owner.__name__)
