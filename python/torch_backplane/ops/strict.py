"""What is probably a mistake is a warning of one category, and an error where a test or CI asks for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OperatorWarning", "strict"]


class OperatorWarning(UserWarning):
    """A registration that works, and probably not as its author thinks: a second kernel, a name that differs.

    ``filterwarnings = error::torch_backplane.ops.OperatorWarning`` in pytest's configuration makes it an error.
    """


@contextmanager
def strict() -> Iterator[None]:
    """Make mistakes errors in a block: an :class:`OperatorWarning`, and a backward through a kernel without a formula.

    The latter is what torch warns of, "an autograd kernel was not registered", and then gives no gradient. Filters of
    warnings hold for all threads.

    Example::

        with torch_backplane.ops.strict():
            import vendor.operators
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", OperatorWarning)
        warnings.filterwarnings("error", message=".*an autograd kernel was not registered", category=UserWarning)
        yield
