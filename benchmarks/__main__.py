"""``python -m benchmarks``: starts a process for each configuration of the device and merges what they found."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.row import AS_IS, CONFIGURATIONS, HOST, Configuration, Line, Row

ROOT = Path(__file__).resolve().parents[1]
MODULES = (
    "tensors",
    "allocator",
    "portable",
    "compile",
    "triton",
    "custom_ops",
    "fallback",
    "copies",
    "profiler",
    "gpt_step",
    "graphs",
    "growth",
)
IN_SEVERAL_PROCESSES = ("distributed",)


def device_rows(models: bool = False, rounds: int = 5) -> list[Row]:
    """The rows that are measured on the device, or those of whole models, of so many rounds each."""
    if models:
        from benchmarks.models import rows

        return rows(rounds)
    modules = (importlib.import_module(f"benchmarks.{name}") for name in MODULES + IN_SEVERAL_PROCESSES)
    return [row for module in modules for row in module.ROWS]


def configurations(module: str, device: str) -> tuple[Configuration, ...]:
    """The simulated device's kinds, or the device as it is: another driver does not know these options."""
    prefix = device.upper()
    if any(os.environ.get(f"{prefix}_{name}") for name in ("DRIVER", "OPTIONS")):
        return (AS_IS,)
    found = importlib.util.find_spec(module)
    if found is None:
        raise SystemExit(f"there is no package {module!r} to measure: build it (make dev), or name yours with --module")
    try:
        build = importlib.import_module(f"{module}._build_info")
    except ImportError:
        return (AS_IS,)
    return CONFIGURATIONS if getattr(build, "DRIVER", "") == "sim" else (AS_IS,)


def measure_here(arguments: argparse.Namespace, configuration: Configuration) -> list[Line]:
    """The rows of one configuration, in this process."""
    import torch

    importlib.import_module(arguments.module)
    torch.set_num_threads(1)
    rows = [row for row in device_rows(arguments.models, arguments.rounds) if re.search(arguments.only, row.name)]
    if configuration is AS_IS:  # a row that differs by configuration alone is one row
        rows = list({(row.name, row.measure): row for row in reversed(rows)}.values())[::-1]
    else:
        rows = [row for row in rows if configuration in row.configurations]
    return [Line.measured(row, configuration, arguments.device) for row in rows]


def measure_in_child(arguments: argparse.Namespace, configuration: Configuration) -> list[Line]:
    """The same in a separate process, because a driver reads its options once."""
    environment = dict(os.environ)
    prefix = arguments.device.upper()
    if configuration.options:
        environment[f"{prefix}_OPTIONS"] = configuration.options
    environment |= {f"{prefix}_{name}": value for name, value in configuration.variables}
    command = [sys.executable, "-m", "benchmarks", "--module", arguments.module, "--device", arguments.device]
    command += ["--only", arguments.only, "--child", configuration.name]
    command += ["--models", "--rounds", str(arguments.rounds)] if arguments.models else []
    child = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode != 0:
        return [Line("every row", configuration.name, error=f"its process ended with {child.returncode}; see above")]
    return [Line.from_json(values) for values in json.loads(child.stdout.splitlines()[-1])]


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--module", default="mydevice", help="the backend's Python package")
    parser.add_argument("--device", default="", help="the device's name (default: the module's)")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name matches")
    parser.add_argument("--models", action="store_true", help="time whole models instead (half an hour)")
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="of each model; 1 for a device on which it takes minutes"
    )
    parser.add_argument("--builds", action="store_true", help="also time builds of the rendered template (minutes)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--markdown", action="store_true", help="print the table for a document")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.device = arguments.device or arguments.module

    if arguments.child is not None:
        configuration = next(c for c in (*CONFIGURATIONS, AS_IS) if c.name == arguments.child)
        print(json.dumps([line.to_json() for line in measure_here(arguments, configuration)]))
        return

    from benchmarks import first_run, triton, vulkan
    from benchmarks.builds import build_rows
    from benchmarks.imports import import_row
    from benchmarks.report import machine, show

    lines = []
    progress = Console(stderr=True)
    measured = configurations(arguments.module, arguments.device)
    for configuration in measured:
        with progress.status(f"measuring: {configuration.name}"):
            lines += measure_in_child(arguments, configuration)
    order = [row.name for row in device_rows(arguments.models)]
    lines.sort(key=lambda line: order.index(line.row) if line.row in order else -1)
    imports = [] if arguments.models else [import_row(arguments.module), import_row("torch_backplane.ops", budget=20)]
    # Those of a first run ask the simulated device for a kind, those of Vulkan for other drivers.
    first_runs = [] if arguments.models or AS_IS in measured else [*first_run.ROWS, *triton.FIRST_RUNS, *vulkan.ROWS]
    for row in [*imports, *first_runs, *(build_rows() if arguments.builds else [])]:
        if re.search(arguments.only, row.name):
            with progress.status(f"measuring: {row.name}"):
                lines.append(Line.measured(row, HOST, arguments.device))
    show(lines, markdown=arguments.markdown)
    if arguments.json:
        report = {"machine": machine(), "lines": [line.to_json() for line in lines]}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
