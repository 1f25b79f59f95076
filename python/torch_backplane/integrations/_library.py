"""The contents of a library's file: the versions that it was tried with, and the changes after each module's import."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from torch_backplane import _backend

_ABSENT = object()


class Unexpected(Exception):
    """A library is not as its integration expects: all its patches are undone. The text is a part of the warning."""


Step = Callable[[Any, "Patch"], str]
"""``step(module, patch)`` adapts a module whose import has ended, and returns what it did, in words."""


class Integration:
    """One library: ``integration`` of a file in this package.

    Args:
        distribution: the library's name on the package index.
        tried: the versions that the tests of it ran with, as a specifier of PEP 440: ``~=1.12.0``.
    """

    def __init__(self, distribution: str, tried: str) -> None:
        self.distribution, self.tried = distribution, tried
        self.modules: dict[str, list[tuple[str, Step]]] = {}

    def after(self, module: str, releases: str = "") -> Callable[[Step], Step]:
        """Decorate a step that runs after the import of ``module``, a name such as ``accelerate.state``.

        It does not cause the import. A step imports other modules only if the library's module has done so already.

        Args:
            module: the module's name.
            releases: those of the tried versions that the step is for, such as ``<1.13``; by default all.
        """

        def add(step: Step) -> Step:
            self.modules.setdefault(module, []).append((releases, step))
            return step

        return add

    def words(self, done: str, *functions: str, releases: str = "", **words: str) -> None:
        """Add steps that only call :meth:`Patch.words`.

        Args:
            done: what the steps do, in words.
            *functions: a module and functions and methods of it: ``"accelerate.state: function Class.method"``.
            releases: as in :meth:`after`.
            **words: the replacement of each word; by default the device's name for ``cuda``.
        """
        for text in functions:
            name, _, names = text.partition(":")

            @self.after(name, releases)
            def say(module: Any, patch: Patch, names: str = names) -> str:
                patch.words(module, names, **(words or {"cuda": _backend.device}))
                return done

    def knows(self, version: str) -> bool:
        """Whether the version is one of those tried; a pre-release counts as its release."""
        from packaging.version import InvalidVersion

        try:
            return _is_among(self.tried, version)
        except InvalidVersion:
            return False

    def steps(self, module: str, version: str) -> list[Step]:
        """The steps after the import of a module, in this version of the library."""
        return [step for releases, step in self.modules.get(module, []) if _is_among(releases, version)]


class Patch:
    """Changes functions and values of one library, checked, and restores all of them if one is not as expected."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._undo: list[Callable[[], None]] = []

    def __call__(self, owner: Any, name: str, takes: str) -> Callable[[Callable[..., Any]], None]:
        """Decorate the replacement of a function, method, property, class method or static method.

        It takes the original, then the arguments. Other modules that have imported the function get it as well.

        Args:
            owner: a module or a class; the attribute must be its own.
            name: the attribute.
            takes: the parameters that it must begin with, such as ``"self model"``.

        Raises:
            Unexpected: there is no such attribute, or it takes something else.
        """
        found = _find(owner, name)
        kind = type(found) if isinstance(found, (property, classmethod, staticmethod)) else None
        inner = _inner(owner, name)
        if hasattr(inner, "_integration"):  # one function in two places, or a module was reloaded
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
                new: Any = property(ours, found.fset, found.fdel, found.__doc__)
            else:
                new = kind(ours) if kind else ours
            _set_everywhere(owner, name, new, instead_of=found)
            self._undo.append(lambda: _set_everywhere(owner, name, found, instead_of=new))

        return put

    def words(self, owner: Any, names: str, **words: str) -> None:
        """Replace words in functions: ``cuda="mydevice"`` turns ``torch.cuda.x`` and ``"cuda:0"`` into the device's.

        So the library's own path for cuda runs, for this device. The function stays the same object; in its code, the
        attributes that are such a word change, and the strings that are one or begin with it and a colon.

        Args:
            owner: a module or a class.
            names: functions, methods and so on of it, with blanks between; ``Class.method`` of a module.
            words: the replacement of each word, which must occur in each function.

        Raises:
            Unexpected: a function is missing, or one of the words in it.
        """
        for path in names.split():
            *classes, name = path.split(".")
            holder = functools.reduce(_find, classes, owner)
            function = _inner(holder, name)
            layers = [function]
            while hasattr(function, "__wrapped__"):
                function = function.__wrapped__
                layers.append(function)
            if hasattr(function, "_words"):
                continue
            seen: set[str] = set()
            before, after = function.__code__, _translated(function.__code__, words, seen)
            if missing := words.keys() - seen:
                raise Unexpected(f"{_name(holder)}.{name} does not contain {', '.join(sorted(missing))}")
            _say(layers, after, words)
            self._undo.append(functools.partial(_say, layers, before))

    def value(self, owner: Any, name: str, change: Callable[[Any], Any]) -> None:
        """Replace a value by ``change(value)``, only here. ``change`` raises Unexpected if it cannot."""
        found = _find(owner, name)
        setattr(owner, name, change(found))
        self._undo.append(lambda: setattr(owner, name, found))

    def also(self, undo: Callable[[], None]) -> None:
        """Register how to undo a change that a step made by itself."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Restore what was changed, the last change first."""
        while self._undo:
            self._undo.pop()()


def _is_among(releases: str, version: str) -> bool:
    """Whether a specifier contains the version; a pre-release counts as its release."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    return SpecifierSet(releases).contains(Version(version).base_version)


def _say(layers: list[Any], code: CodeType, words: dict[str, str] | None = None) -> None:
    """Give the innermost function other code, and clear the caches of the decorators around it."""
    layers[-1].__code__ = code
    if words:
        layers[-1]._words = words
    else:
        del layers[-1]._words
    for layer in layers:
        getattr(layer, "cache_clear", lambda: None)()


def _translated(part: Any, words: dict[str, str], seen: set[str]) -> Any:
    """Code, or a constant of it, with other words; those found are added to ``seen``."""
    if isinstance(part, CodeType):
        seen |= words.keys() & set(part.co_names)
        return part.replace(
            co_names=tuple(words.get(name, name) for name in part.co_names),
            co_consts=tuple(_translated(one, words, seen) for one in part.co_consts),
        )
    if isinstance(part, (tuple, frozenset)):
        return type(part)(_translated(one, words, seen) for one in part)
    if isinstance(part, str):
        word, colon, rest = (part, "", "") if part in words else part.partition(":")
        if word in words and " " not in rest:
            seen.add(word)
            return words[word] + colon + rest
    return part


def _find(owner: Any, name: str) -> Any:
    found = vars(owner).get(name, _ABSENT)
    if found is _ABSENT:
        raise Unexpected(f"{_name(owner)} has no {name}")
    return found


def _inner(owner: Any, name: str) -> Any:
    """The function of a property, class method or the like; anything else is unexpected."""
    found = _find(owner, name)
    if isinstance(found, property):
        inner: Any = found.fget
    elif isinstance(found, functools.cached_property):
        inner = found.func
    else:
        inner = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
    if not callable(inner):
        raise Unexpected(f"{_name(owner)}.{name} is not a function")
    return inner


def _set_everywhere(owner: Any, name: str, new: Any, instead_of: Any) -> None:
    """Set an attribute; a module's function also where others have imported it from there under its name."""
    setattr(owner, name, new)
    if isinstance(owner, ModuleType) and callable(instead_of):
        for module in list(sys.modules.values()):
            if isinstance(module, ModuleType) and vars(module).get(name) is instead_of:
                setattr(module, name, new)


def _name(owner: Any) -> str:
    module = getattr(owner, "__module__", None)
    return f"{module}.{owner.__qualname__}" if module and hasattr(owner, "__qualname__") else str(owner.__name__)
