"""``python -m benchmarks.beside``: a device beside another one of the same process, such as torch.cuda on the same GPU.

Each row is a quotient: of times, where less is better, or of speeds, where more is. Rounds of the two alternate, so
that a clock that changes changes both.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.row import Result
from benchmarks.timing import ratio

ROOT = Path(__file__).resolve().parents[1]
# Queued one behind the other, then waited for: what a program sees that does not read each result.
QUEUED = "for _ in range(repeats): call()\nwait()"

Setup = Callable[[str, int], Callable[[], object]]


@dataclass(frozen=True)
class Comparison:
    """A row.

    Attributes:
        name: as the report prints it.
        setup: (device, scale) -> what is called; scale divides the sizes.
        repeats: calls before a wait.
        budget: of ours over theirs for times, of theirs over ours (a quotient of speeds) with ``speed``.
        speed: more is better.
        rounds: of each side.
    """

    name: str
    setup: Setup
    repeats: int
    budget: float
    speed: bool = False
    rounds: int = 15

    def within(self, result: Result) -> bool:
        """Whether the budget holds."""
        return result.best >= self.budget if self.speed else result.best <= self.budget


def _small(op: Callable[..., torch.Tensor]) -> Setup:
    def setup(device: str, scale: int) -> Callable[[], object]:
        x, y = (torch.randn(16, 16, device=device) for _ in range(2))
        return lambda: op(x, y)

    return setup


def _copy(to_device: bool, from_device: bool) -> Setup:
    def setup(device: str, scale: int) -> Callable[[], object]:
        def bytes_(here: bool) -> torch.Tensor:
            place: dict[str, Any] = {"device": device} if here else {"pin_memory": torch.accelerator.is_available()}
            return torch.ones((256 << 20) // scale, dtype=torch.uint8, **place)

        source, target = bytes_(from_device), bytes_(to_device)
        return lambda: target.copy_(source, non_blocking=True)

    return setup


def _matmul(dtype: torch.dtype) -> Setup:
    def setup(device: str, scale: int) -> Callable[[], object]:
        size = 4096 // scale
        x, y = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        return lambda: x @ y

    return setup


def _pointwise(device: str, scale: int) -> Callable[[], object]:
    x, y = (torch.randn((64 << 20) // scale, device=device) for _ in range(2))
    out = torch.empty_like(x)
    return lambda: torch.add(x, y, out=out)


def _step(device: str, scale: int) -> Callable[[], object]:
    sys.path.insert(0, str(ROOT / "examples" / "demo"))
    gpt, lockstep = importlib.import_module("gpt"), importlib.import_module("lockstep")
    torch.manual_seed(0)
    text = gpt.repository_text()
    model = gpt.GPT(len(text.characters), width=512 // scale, layers=8 // min(scale, 4))
    batch = next(text.batches(1, 32 // min(scale, 8), model.context))
    steps = lockstep.train(copy.deepcopy(model).to(device), iter(lambda: batch, None))
    return lambda: next(steps)


ROWS = [
    Comparison("add of 16 x 16, a call", _small(torch.add), 200, 1.1),
    Comparison("mm of 16 x 16, a call", _small(torch.mm), 200, 1.1),
    Comparison("copy to the device", _copy(True, False), 2, 0.97, speed=True),
    Comparison("copy from the device", _copy(False, True), 2, 0.97, speed=True),
    Comparison("copy on the device", _copy(True, True), 10, 0.97, speed=True),
    Comparison("matmul, float32", _matmul(torch.float32), 5, 0.98, speed=True),
    Comparison("matmul, bfloat16", _matmul(torch.bfloat16), 20, 0.98, speed=True),
    Comparison("add of 64 Mi", _pointwise, 20, 0.85, speed=True),
    Comparison("GPT training step", _step, 1, 1.2, rounds=9),
]


def measure(row: Comparison, device: str, other: str, scale: int) -> dict[str, Any]:
    """One row as plain values; an error becomes its text, so that the others still run."""
    line: dict[str, Any] = {"name": row.name, "budget": row.budget, "speed": row.speed}
    try:
        ours, theirs = (
            {
                "call": row.setup(name, scale),
                "repeats": row.repeats,
                "wait": getattr(torch, torch.device(name).type).synchronize,
            }
            for name in (device, other)
        )
        result = ratio(QUEUED, ours, theirs, rounds=row.rounds, inverse=row.speed)
        calls = row.repeats
        result.device, result.cpu = (None if s is None else s / calls for s in (result.device, result.cpu))
        line |= asdict(result) | {"within": row.within(result)}
    except Exception as error:
        line["error"] = f"{type(error).__name__}: {error}"
    return line


def main() -> None:
    """Measure, print, write; 1 if a budget does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--device", default="mydevice")
    parser.add_argument("--other", default="cuda", help="the device that it is compared with")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name matches")
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    importlib.import_module(torch.device(options.device).type)
    torch.backends.cuda.matmul.allow_tf32 = False
    lines = []
    for row in ROWS:
        if not re.search(options.only, row.name):
            continue
        line = measure(row, options.device, options.other, options.scale)
        lines.append(line)
        if "error" in line:
            print(f"ERROR  {row.name}: {line['error']}", flush=True)
            continue
        relation = ">=" if row.speed else "<="
        print(
            f"{'ok' if line['within'] else 'OVER':6} {row.name:28} {line['best']:6.2f} x ({relation} {row.budget})  "
            f"{line['device'] * 1e6:10.1f} us, {options.other} {line['cpu'] * 1e6:10.1f} us",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({"device": options.device, "other": options.other, "rows": lines}, indent=1))
    sys.exit(0 if lines and all(line.get("within") for line in lines) else 1)


if __name__ == "__main__":
    main()
