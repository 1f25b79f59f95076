"""What stops a run: wrong usage or a set-up that cannot work, as opposed to a case that fails."""

from __future__ import annotations

EXTRA = frozenset({"expecttest", "numpy", "scipy"})
"""The modules of the extra ``conformance``."""


class ConformanceError(Exception):
    """The run cannot start or cannot continue. The message says what was asked, what was found and what to do."""


def missing_extra(error: ModuleNotFoundError, who: str) -> ConformanceError | None:
    """The error to raise instead if a module of the extra is missing; None if another one is.

    ``who`` needs it, such as ``"the suite ops"``.
    """
    if (error.name or "").split(".")[0] not in EXTRA:
        return None
    return ConformanceError(
        f"{who} needs {error.name}, which is not installed: pip install 'torch-backplane[conformance]'"
    )
