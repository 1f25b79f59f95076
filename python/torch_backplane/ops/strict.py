"""Warnings of probable mistakes, in one category, which tests or CI can make errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OperatorWarning", "strict"]


class OperatorWarning(UserWarning):
    """A registration that works, but probably not as intended: a second kernel, a name that differs.

    ``filterwarnings = error::torch_backplane.ops.OperatorWarning`` in pytest's configuration makes it an error.
    """


@contextmanager
def strict() -> Iterator[None]:
    """Make mistakes errors in a block: an :class:`OperatorWarning`, and a backward through a kernel without a formula.

    For the latter torch warns "an autograd kernel was not registered", and computes no gradient. Filters of warnings
    apply to all threads.

    Example::

        with torch_backplane.ops.strict():
            import vendor.operators
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", OperatorWarning)
        warnings.filterwarnings("error", message=".*an autograd kernel was not registered", category=UserWarning)
        yield
