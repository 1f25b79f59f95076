"""``python -m <package>``: a short account of device, driver, torch and build."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torch_backplane import __version__, _backend, _setup

_GIB = 2**30


def main(package: str) -> int:
    """Print the account.

    Args:
        package: the backend's package, imported already.

    Returns:
        The exit status: 0 if there is a device, 1 if there is none; the reason is then printed.
    """
    import torch

    _setup.setup(package)
    build, C = _backend.build, _backend.C
    module = torch.get_device_module(_backend.device)
    count = module.device_count()
    info = C.driver.info()

    about = {
        "device": f"torch.device('{_backend.device}'), {count} visible" if count else f"'{_backend.device}'",
        "driver": info["path"],
        "shims": info["shims"],
        "options": info["options"],
        "offers": ", ".join(C.driver.capabilities()) if count else "",
        "torch": f"{torch.__version__}, Python {sys.version.split()[0]}",
        "build": f"for torch {build.TORCH_VERSION}, {build.COMPILER}, {build.COMPILE_FLAGS or build.BUILD_TYPE}",
        "SDK": f"torch-backplane {build.SDK_VERSION} at build time, {__version__} now; protocol {build.CORE_PROTOCOL}",
    }

    console = Console(highlight=False)
    console.print(f"[bold]{package}[/bold]: PyTorch on {_backend.device}")
    for title, text in about.items():
        if text:  # on one line, whatever its length: a path that is broken cannot be copied
            console.print(f"[bold cyan]{title:<9}[/bold cyan]{escape(text)}", soft_wrap=True)
    if count == 0:
        reason = info["refusal"] or "the driver has no device, or none is visible"
        console.print(f"[bold red]no device:[/bold red] {reason}")
        return 1

    devices = Table(box=None, header_style="bold cyan", padding=(0, 2, 0, 0))
    for title in ("index", "name", "memory", "free", "capability", "units"):
        devices.add_column(title, justify="right" if title in ("memory", "free", "units") else "left")
    for index in range(count):
        p = module.get_device_properties(index)
        free, total = module.mem_get_info(index)
        devices.add_row(
            f"{_backend.device}:{index}",
            p.name,
            f"{total / _GIB:.1f} GiB",
            f"{free / _GIB:.1f} GiB",
            f"{p.major}.{p.minor}",
            str(p.multi_processor_count or "-"),
        )
    console.print(devices)
    return 0
