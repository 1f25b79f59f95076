"""What a driver can do beyond the minimum: tests declare what they require, the loaded driver what it supports."""

from __future__ import annotations

from torch_backplane import _backend
from torch_backplane.testing.kernels import kernel_calls


def known_capabilities() -> dict[str, str]:
    """Every capability that a test may require, with its meaning.

    Raises:
        RuntimeError: no backend package has been imported.
    """
    return _backend.C.driver.capability_texts()


def capabilities() -> frozenset[str]:
    """The capabilities of the loaded driver; it is loaded if it was not. Touches no device.

    Raises:
        RuntimeError: no backend package has been imported.
    """
    return frozenset(_backend.C.driver.capabilities())


def lacks(name: str) -> str:
    """What is missing of a requirement, a capability of the loaded driver or ``"kernel:<op>"``; empty if nothing is.

    Opens the driver to answer for a kernel.

    Raises:
        RuntimeError: no backend package has been imported.
    """
    if not name.startswith("kernel:"):
        return "" if name in capabilities() else name
    op = name.removeprefix("kernel:")
    needs = _backend.C.kernels.unmet_needs(op if "::" in op else f"aten::{op}")
    if needs:
        return f"{needs}, for the kernel of {op}"
    try:
        kernel_calls(op)
    except RuntimeError:
        return f"a kernel of {op}"
    return ""
