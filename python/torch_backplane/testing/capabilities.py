"""What a driver can do beyond what every one can: tests say what they require, the loaded driver says what it has."""

from __future__ import annotations

CAPABILITIES: dict[str, str] = {
    "host_exec": "runs host functions in stream order (bp.host_exec): native example kernels",
    "host_view": "lets the host reach device memory (bp.host_view)",
    "zero_copy": "host views at the same address, coherent and cached: the fallback copies nothing",
    "peer": "direct access between devices (bp.peer)",
    "vmm": "maps memory into addresses set aside before (bp.vmm): expandable segments",
    "ipc": "memory that processes share (bp.ipc)",
    "memory_info": "reports free memory",
    "pointer_info": "knows the device of an address",
    "host_register": "pins memory of the caller's",
    "stream_native": "has a stream object of its own behind the handle",
    "stream_from_native": "takes streams that others made with the vendor's runtime",
    "stream_callback": "runs host callbacks in stream order",
    "set_current": "is told the current device",
    "multi_device": "has more than one visible device",
    "priorities": "has streams of more than one priority",
    "streams": "has more than one stream beside the default one",
}
"""Every capability that a test may require, with its meaning."""


def capabilities() -> frozenset[str]:
    """The capabilities of the loaded driver; it is loaded if it was not. Touches no device.

    Raises:
        RuntimeError: no backend package has been imported.
    """
    from torch_backplane import _backend

    return frozenset(_backend.C.capabilities())


def lacks(name: str) -> str:
    """What the loaded driver lacks of a requirement: a capability, or ``"kernel:<op>"``. Empty if nothing.

    A kernel's question opens the driver.

    Raises:
        RuntimeError: no backend package has been imported.
    """
    from torch_backplane import _backend

    if not name.startswith("kernel:"):
        return "" if name in capabilities() else name
    op = name.removeprefix("kernel:")
    needs = _backend.C.unmet_needs(op if "::" in op else f"aten::{op}")
    return f"{needs}, for the kernel of {op}" if needs else ""
