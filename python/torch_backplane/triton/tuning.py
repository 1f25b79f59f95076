"""What ``triton.autotune`` times its configurations by: each kernel once.

Many configurations differ in options alone that change nothing in a kernel of the dialect, such as ``num_warps``. Those
have the time of the first of them, and are neither compiled nor launched.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_backplane import compiler

_NO_EFFECT = frozenset(
    "num_warps num_stages num_ctas maxnreg minRegAutoWS maxRegAutoWS waves_per_eu matrix_instr_nonkdim kpack".split()
)
"""Options that change nothing in the dialect's text of a kernel. A kernel's own parameter of the name is no option."""
_CLOSURE = {"self", "config", "full_nargs"}
"""Of the function that Triton's autotuner has timed: the tuner, the configuration, and all arguments of the launch."""
_PLAIN = (bool, int, float, str, type(None))

Facts = dict[str, Any]
"""What decides a time, by name: numbers and texts, tuples of them, and weak references to other objects."""


@dataclass
class _Timed:
    facts: Facts
    result: Any = None
    error: Exception | None = None


class Benchmarker:
    """``triton.testing.do_bench`` of one autotuner."""

    def __init__(self) -> None:
        self._timed: list[_Timed] = []

    def __call__(self, call: Callable[[], Any], *arguments: Any, **options: Any) -> Any:
        """Time a call, or return what an equal one took."""
        from triton.runtime.errors import OutOfResources
        from triton.testing import do_bench

        facts = _facts(call)
        if facts is None:
            return do_bench(call, *arguments, **options)
        facts["do_bench"] = repr((arguments, options))
        for one in self._timed:
            if _are_equal(one.facts, facts):
                if one.error is not None:
                    raise one.error
                return one.result
        self._timed = [one for one in self._timed if all(_is_alive(fact) for fact in one.facts.values())]
        timed = _Timed(facts)
        try:
            timed.result = do_bench(call, *arguments, **options)
        except OutOfResources as error:
            timed.error = error.with_traceback(None)
            raise
        finally:
            if timed.result is not None or timed.error is not None:
                self._timed.append(timed)
        return timed.result


def _facts(call: Callable[[], Any]) -> Facts | None:
    """Those of a function that an autotuner has timed; None for another function, which is always timed."""
    code, cells = getattr(call, "__code__", None), getattr(call, "__closure__", None)
    if code is None or cells is None or not set(code.co_freevars) >= _CLOSURE:
        return None
    closure = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}
    parameters, config = closure["self"].arg_names, closure["config"]
    found: Facts = {"pre_hook": config.pre_hook}
    for name, value in closure["full_nargs"].items():
        if name in parameters or name not in _NO_EFFECT or _takes_ttir():
            found[f"argument {name}"] = value
    try:
        return {name: _kept(value) for name, value in found.items()}
    except TypeError:  # an object without weak references
        return None


def _takes_ttir() -> bool:
    """Whether the driver's own compiler of Triton decides what an option does."""
    return "ttir" in getattr(compiler.target(), "languages", ())


def _kept(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_kept, value))
    return value if isinstance(value, _PLAIN) else weakref.ref(value)


def _is_alive(fact: Any) -> bool:
    if isinstance(fact, tuple):
        return all(map(_is_alive, fact))
    return not isinstance(fact, weakref.ref) or fact() is not None


def _are_equal(first: Facts, second: Facts) -> bool:
    return first.keys() == second.keys() and all(_is_same(fact, second[name]) for name, fact in first.items())


def _is_same(first: Any, second: Any) -> bool:
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, weakref.ref) and isinstance(second, weakref.ref):
        return first() is second() is not None
    return type(first) is type(second) and first == second
