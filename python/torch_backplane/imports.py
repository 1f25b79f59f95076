"""Calls back after the import of a module, whether that is yet to begin, in progress or complete.

Yet to begin: a finder in front of the others lets them find the module, and wraps its loader. In progress, because the
module imports torch, which imports the backend: the module's spec, in which importlib notes the end.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Then = Callable[[str, ModuleType, bool], None]
"""``then(name, module, again)``, with the module's import lock held; ``again`` after a reload."""


class AfterImport(importlib.abc.MetaPathFinder):
    """A finder that calls ``then`` after the modules for which ``wanted(name)`` is true.

    It stays in ``sys.meta_path``: a reload undoes what was done to a module.
    """

    def __init__(self, wanted: Callable[[str], bool], then: Then) -> None:
        self._wanted, self._then = wanted, then
        self._thread = threading.local()  # what this thread looks for: another such finder may call ours in turn

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Ask the other finders."""
        if not self._wanted(fullname):
            return None
        searching = self._thread.__dict__.setdefault("names", set())
        if fullname in searching:
            return None
        searching.add(fullname)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(fullname, path, target) if find and finder is not self else None
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):  # not so: a namespace, or a loader of Python 2's kind
                        spec.loader = _Loader(spec.loader, self._then)
                    return spec
            return None
        finally:
            searching.discard(fullname)


class _Loader(importlib.abc.Loader):
    """In place of a module's loader until the module's code has run; the module itself shows its own loader."""

    def __init__(self, loader: Any, then: Then) -> None:
        self._loader, self._then = loader, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        name, again = module.__name__, hasattr(module, "__builtins__")  # which the first run of its code adds
        for holder, attribute in ((module, "__loader__"), (module.__spec__, "loader")):
            if getattr(holder, attribute, None) is self:
                setattr(holder, attribute, self._loader)
        self._loader.exec_module(module)
        self._then(name, sys.modules.get(name, module), again)


def when_imported(name: str, then: Then) -> None:
    """Call ``then`` for a module of ``sys.modules``: now, or when its import has ended, in any thread.

    A module that is not there is left to the finder.
    """
    module = sys.modules.get(name)
    if module is None:
        return
    spec = getattr(module, "__spec__", None)
    if type(spec) is importlib.machinery.ModuleSpec and getattr(spec, "_initializing", False):
        spec.__dict__["_then"] = then
        spec.__class__ = _Watched
        if getattr(spec, "_initializing", False) or spec.__dict__.pop("_then", None) is None:
            return
        spec.__class__ = importlib.machinery.ModuleSpec  # its import ended in another thread before it was watched
    then(name, module, False)


class _Watched(importlib.machinery.ModuleSpec):
    """The spec of a module that is being imported: importlib sets ``_initializing`` to False at the end."""

    def __setattr__(self, attribute: str, value: object) -> None:
        super().__setattr__(attribute, value)
        if attribute == "_initializing" and not value:
            then = self.__dict__.pop("_then", None)
            self.__class__ = importlib.machinery.ModuleSpec  # type: ignore[assignment]
            module = sys.modules.get(self.name)
            if then and module is not None:  # else its import failed
                then(self.name, module, False)


_asked: dict[str, Callable[[], None]] = {}


def after_import(name: str, then: Callable[[], None]) -> None:
    """Call ``then()`` once, after the import of one module: now, if that has ended.

    A second call for the same module before its import replaces the first.
    """
    _asked[name] = then
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    when_imported(name, _answer)


def _answer(name: str, module: ModuleType, again: bool) -> None:
    then = _asked.pop(name, None)
    if then is not None:
        then()


_finder = AfterImport(_asked.__contains__, _answer)
