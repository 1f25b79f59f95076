"""``python -m fuzz --programs 10000 --seed 1 --kinds all``: random programs on all kinds of device. ``--compiled``:
random functions under torch.compile, on other kinds.

Each kind runs in a separate process, which forks one child after another. A finding is reduced, and written to
``--findings`` as a Python file that needs nothing of this package. The last line sums up; the status is 1 if there are
findings.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fuzz.kinds import GRAPHS, KINDS, ROOT, environment


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=2000, help="on each kind")
    parser.add_argument("--seed", type=int, help="of the first program; default: another one each time")
    parser.add_argument("--compiled", action="store_true", help="random functions under torch.compile instead")
    kinds = f"{','.join(KINDS)}; with --compiled of {','.join(GRAPHS)}"
    parser.add_argument("--kinds", default="all", help=f"all, or some of {kinds}")
    parser.add_argument("--seconds", type=float, default=1e9, help="for each kind, at most")
    parser.add_argument("--only", help="families of steps to draw from, comma-separated")
    parser.add_argument("--without", default="", help="families of steps to leave out")
    parser.add_argument("--most", type=int, default=20, help="different findings, after which a kind ends")
    parser.add_argument("--findings", type=Path, default=ROOT / "build" / "fuzz", help="folder for scripts")
    parser.add_argument("--device", default="mydevice")
    parser.add_argument("--prepare", default="builtins:dict", help="MODULE:FUNCTION, called first in each child")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="kinds at a time")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run all kinds, so many at a time."""
    args = arguments()
    if args.inside:
        return inside(args)
    seed = time.time_ns() // 1000 % 10**9 if args.seed is None else args.seed
    kinds = list(GRAPHS if args.compiled else KINDS) if args.kinds == "all" else args.kinds.split(",")
    print(f"fuzz: {args.programs} programs from seed {seed} on {', '.join(kinds)}", flush=True)
    args.findings.mkdir(parents=True, exist_ok=True)
    waiting, running, statuses = list(kinds), [], []
    while waiting or running:
        while waiting and len(running) < args.jobs:
            kind = waiting.pop(0)
            words = [sys.executable, "-m", "fuzz", *sys.argv[1:], "--seed", str(seed), "--inside", kind]
            running.append(subprocess.Popen(words, env=environment(kind, args.device)))
        time.sleep(0.05)
        statuses += [process.returncode for process in running if process.poll() is not None]
        running = [process for process in running if process.returncode is None]
    return max(statuses)


def inside(args: argparse.Namespace) -> int:
    """One kind, in this process's environment."""
    seeds, until = range(args.seed, args.seed + args.programs), time.monotonic() + args.seconds
    module, _, function = args.prepare.partition(":")
    prepare: Callable[[], object] = getattr(importlib.import_module(module), function)
    if args.compiled:
        from fuzz import compiled

        return compiled.run(args.device, seeds, prepare, until, args.most, args.findings, args.inside)
    import torch  # noqa: F401 (its backends with it; the driver is opened by children alone)

    from fuzz import batch, families
    from fuzz.reference import flatten
    from fuzz.shrink import shrink

    features = args.only.split(",") if args.only else list(families.FEATURES)
    features = [name for name in features if name not in args.without.split(",")]
    seen: dict[tuple[str, str, str], int] = {}
    shrunk: dict[tuple[str, ...], int] = {}

    def new(found: batch.Found) -> bool:
        seen[found.key()] = seen.get(found.key(), 0) + 1
        if seen[found.key()] == 1:
            report(found)
        return len(shrunk) < args.most

    def report(found: batch.Found) -> None:
        path = args.findings / f"{args.inside}-{found.seed}"
        tries = range(5 if found.program else 0)  # an order that is missing does not show each time
        again = next(filter(None, (batch.verdict(args.device, found.program, prepare) for _ in tries)), None)
        if again is None:
            print(f"{args.inside} seed {found.seed}: {found.category} {found.function}: {found.text}", flush=True)
            print("  (the program alone does not show it again)", flush=True)
            return

        def fails(candidate: dict[str, object]) -> bool:
            answer = batch.verdict(args.device, candidate, prepare)
            return answer is not None and answer["category"] == again["category"]

        small = shrink(found.program, fails)
        functions = sorted({step.get("fn", "") for _, step in flatten(small)} - {"helpers.make", ""})
        if shrunk.setdefault((again["category"], *functions), found.seed) != found.seed:
            return
        answer = batch.verdict(args.device, small, prepare) or again
        text = f"{answer['category']} {answer['function']}: {answer['text']}"
        path.with_suffix(".json").write_text(json.dumps({**asdict(found), "program": small, "text": text}, indent=1))
        settings = {k: v for k, v in os.environ.items() if k.startswith(f"{args.device.upper()}_")}
        title = f"{args.inside}, seed {found.seed}: {text}"
        from fuzz.child import in_child
        from fuzz.script import render

        made = in_child(lambda: render(small, title.replace("\\", "/"), args.device, settings), batch.SECONDS)
        if made.result:
            path.with_suffix(".py").write_text(made.result)
        steps = len(small["steps"]) + sum(map(len, small["threads"])) + len(small["after"])
        print(f"{title}\n  {steps} steps: {path.with_suffix('.py')}", flush=True)

    summary = batch.run(args.device, seeds, features, prepare, until, new)
    rate = summary.programs / max(summary.seconds, 1e-9)
    print(
        f"fuzz: {args.inside}: {summary.programs} programs, {summary.steps} steps, {summary.seconds:.0f} s, "
        f"{rate:.0f} a second, {len(summary.found)} findings ({len(shrunk)} different)"
        + (f", {summary.refused_by_cpu} crash torch's CPU" if summary.refused_by_cpu else ""),
        flush=True,
    )
    return 1 if summary.found else 0


if __name__ == "__main__":
    sys.exit(main())
