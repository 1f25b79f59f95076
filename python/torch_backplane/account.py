"""``python -m <package>``: a short account of device, driver, torch and build, for people or as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torch_backplane import __version__, _backend, _setup

_GIB = 2**30


def main(package: str, arguments: list[str] | None = None) -> int:
    """Print the account.

    Args:
        package: the backend's package, imported already.
        arguments: of the command line; None is this process's own. ``--json`` prints what :func:`account` returns.

    Returns:
        The exit status: 0 if there is a device, 1 if there is none, and the reason is printed; 2 for wrong arguments.
    """
    _setup.setup(package)

    @click.command(help=f"PyTorch on {_backend.device}: device, driver, torch and build.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def command(as_json: bool) -> int:
        found = account(package)
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            _print(found)
        return 0 if found["devices"] else 1

    try:
        status: int = command.main(arguments, prog_name=f"python -m {package}", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return status


def account(package: str) -> dict[str, Any]:
    """What the account contains.

    Args:
        package: the backend's package, set up already.

    Returns:
        Texts ``package``, ``device`` (its name), ``torch``, ``python``, ``reason`` (why there is no device, or empty);
        ``driver`` with its ``path``, ``shims``, ``options`` and list ``offers``; ``build`` with ``torch``,
        ``compiler``, ``flags`` and the SDK's version ``sdk``; ``sdk``, the version now, and the number ``protocol``;
        ``devices``, each with ``index``, ``name``, ``uuid``, ``total_memory`` and ``free_memory`` in bytes,
        ``capability`` and ``multi_processor_count`` (0: unknown).
    """
    import torch

    build, C = _backend.build, _backend.C
    module = torch.get_device_module(_backend.device)
    count = module.device_count()
    info = C.driver.info()
    devices = []
    for index in range(count):
        properties = module.get_device_properties(index)
        free, total = module.mem_get_info(index)
        devices.append(
            {
                "index": index,
                "name": properties.name,
                "uuid": properties.uuid,
                "total_memory": total,
                "free_memory": free,
                "capability": f"{properties.major}.{properties.minor}",
                "multi_processor_count": properties.multi_processor_count,
            }
        )
    return {
        "package": package,
        "device": _backend.device,
        "reason": "" if count else info["refusal"] or "the driver has no device, or none is visible",
        "driver": {
            "path": info["path"],
            "shims": info["shims"],
            "options": info["options"],
            "offers": C.driver.capabilities() if count else [],
        },
        "torch": str(torch.__version__),
        "python": sys.version.split()[0],
        "build": {
            "torch": build.TORCH_VERSION,
            "compiler": build.COMPILER,
            "flags": build.COMPILE_FLAGS or build.BUILD_TYPE,
            "sdk": build.SDK_VERSION,
        },
        "sdk": __version__,
        "protocol": build.CORE_PROTOCOL,
        "devices": devices,
    }


def _print(found: dict[str, Any]) -> None:
    driver, build, devices = found["driver"], found["build"], found["devices"]
    name = found["device"]
    about = {
        "device": f"torch.device('{name}'), {len(devices)} visible" if devices else f"'{name}'",
        "driver": driver["path"],
        "shims": driver["shims"],
        "options": driver["options"],
        "offers": ", ".join(driver["offers"]),
        "torch": f"{found['torch']}, Python {found['python']}",
        "build": f"for torch {build['torch']}, {build['compiler']}, {build['flags']}",
        "SDK": f"torch-backplane {build['sdk']} at build time, {found['sdk']} now; protocol {found['protocol']}",
    }
    console = Console(highlight=False)
    console.print(f"[bold]{found['package']}[/bold]: PyTorch on {name}")
    for title, text in about.items():
        if text:  # on one line, whatever its length: a path that is broken cannot be copied
            console.print(f"[bold cyan]{title:<9}[/bold cyan]{escape(text)}", soft_wrap=True)
    if not devices:
        console.print(f"[bold red]no device:[/bold red] {escape(found['reason'])}")
        return
    table = Table(box=None, header_style="bold cyan", padding=(0, 2, 0, 0))
    for title in ("index", "name", "memory", "free", "capability", "units"):
        table.add_column(title, justify="right" if title in ("memory", "free", "units") else "left")
    for one in devices:
        table.add_row(
            f"{name}:{one['index']}",
            one["name"],
            f"{one['total_memory'] / _GIB:.1f} GiB",
            f"{one['free_memory'] / _GIB:.1f} GiB",
            one["capability"],
            str(one["multi_processor_count"] or "-"),
        )
    console.print(table)
