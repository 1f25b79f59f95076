"""The caching allocator: hot allocations from C++, and recorded traces replayed against simple strategies.

``python -m benchmarks.allocator`` prints the table of the replays; the hot path is in ``python -m benchmarks``.
"""

from __future__ import annotations

import argparse
import functools
import lzma
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.row import INLINE, Result, Row

TRACES = Path(__file__).parent / "traces"
STRATEGIES = {
    "cache": "caching allocator",
    "expandable": "the same, expandable segments",
    "bins": "bins of powers of two",
    "none": "no cache",
}


@functools.cache
def program(device: str) -> Path:
    """The C++ part, compiled against the installed backend."""
    import torch

    import backplane_sdk
    from torch_backplane.paths import library_paths

    source, torch_dir = backplane_sdk.source_dir(), Path(torch.__file__).parent
    (library,) = library_paths()
    output = Path(tempfile.mkdtemp(prefix="backplane-bench-")) / "allocator"
    command = [os.environ.get("CXX") or shutil.which("c++") or "g++", "-std=c++20", "-O2"]
    command += ["-isystem", str(torch_dir / "include"), "-I", str(source / "include"), "-I", str(source / "backend")]
    command += [str(Path(__file__).parent / "allocator.cpp"), "-o", str(output)]
    command += ["-L", str(library), f"-l{device}", f"-Wl,-rpath,{library}", "-L", str(torch_dir / "lib")]
    command += ["-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_dir / 'lib'}", "-lpthread"]
    subprocess.run(command, check=True)
    return output


def _run(device: str, *words: str) -> list[float]:
    done = subprocess.run([str(program(device)), *words], check=True, stdout=subprocess.PIPE, text=True)
    return [float(value) for value in done.stdout.split()]


def _hot(threads: int, device: str) -> Result:
    best, median = _run(device, "hot", str(threads))
    return Result(best, median, unit="ns")


ROWS = [
    Row("allocation and free, C++, 1 thread", functools.partial(_hot, 1), budget=120),
    Row("allocation and free, C++, 2 threads", functools.partial(_hot, 2)),
]


def read_trace(path: Path) -> list[int]:
    """The events: n > 0 allocates n bytes, -n frees what the n-th allocation gave."""
    return [int(line) for line in lzma.decompress(path.read_bytes()).split()]


def write_trace(path: Path, events: list[int]) -> None:
    """The inverse of :func:`read_trace`."""
    path.write_bytes(lzma.compress("\n".join(map(str, events)).encode(), preset=9 | lzma.PRESET_EXTREME))


def replay(device: str, strategy: str, events: list[int]) -> dict[str, float]:
    """Peaks in bytes, calls of the driver's alloc, nanoseconds an event."""
    from array import array

    with tempfile.NamedTemporaryFile() as file:
        file.write(array("q", events).tobytes())
        file.flush()
        values = _run(device, "replay", strategy, file.name)
    return dict(zip(("reserved", "requested", "calls", "time"), values, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocator", description=main.__doc__)
    parser.add_argument("--module", default="mydevice", help="the backend's Python package")
    parser.add_argument("--markdown", action="store_true", help="print the table for a document")
    arguments = parser.parse_args()
    import importlib

    importlib.import_module(arguments.module)
    if not any(os.environ.get(f"{arguments.module.upper()}_{name}") for name in ("DRIVER", "OPTIONS")):
        os.environ[f"{arguments.module.upper()}_OPTIONS"] = INLINE.options
    table = Table(box=box.MARKDOWN if arguments.markdown else box.SIMPLE_HEAD)
    columns = ("trace", "strategy", "reserved / requested", "driver allocations", "ns an event")
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:2] else "right")
    for path in sorted(TRACES.glob("*.xz")):
        events = read_trace(path)
        for strategy, name in STRATEGIES.items():
            found = replay(arguments.module, strategy, events)
            ratio = found["reserved"] / found["requested"]
            label = f"{path.stem}, {len(events):,} events, {found['requested'] / 2**20:,.0f} MiB"
            table.add_row(label, name, f"{ratio:.3f}", f"{found['calls']:,.0f}", f"{found['time']:,.0f}")
    console = Console()
    console.width = max(console.width, 130)
    console.print(table)


if __name__ == "__main__":
    main()
