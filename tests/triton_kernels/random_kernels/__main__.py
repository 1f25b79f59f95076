"""``python -m random_kernels --programs 100 --seed 1``.

``--options items=1 items=64`` are options of the device, with which programs run in turn. A finding is printed with
the lines that it needs.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from random_kernels.comparison import Comparison, serve
from random_kernels.programs import Program


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="random_kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, help="default: another one each time")
    parser.add_argument("--first", type=int, default=0, help="of the seed's programs, the first that runs")
    parser.add_argument("--options", nargs="*", default=[""], help="of the device, in turn; default: MYDEVICE_OPTIONS")
    parser.add_argument("--device", default="mydevice")
    parser.add_argument("--prepare", default="builtins:dict", help="MODULE:FUNCTION, called first in each process")
    parser.add_argument("--refused", action="store_true", help="print programs that the interpreter refuses")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if given.serve:
        module, _, function = given.prepare.partition(":")
        getattr(importlib.import_module(module), function)()
        serve(given.serve[0], Path(given.serve[1]))
        return 0
    seed = time.time_ns() // 1000 % 10**9 if given.seed is None else given.seed
    chance = random.Random(seed)
    seeds = [chance.random() for _ in range(given.first + given.programs)]
    findings: Counter[str] = Counter()
    statements: Counter[str] = Counter()
    refused = large = 0
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(Path(folder), given.options, given.device, given.prepare)
        for number in range(given.first, given.first + given.programs):
            program, options = Program(seeds[number]), given.options[number % len(given.options)]
            try:
                difference = comparison.difference(program, program.text, options)
            except RuntimeError as error:
                refused += 1
                if given.refused:
                    print(f"program {number}: the interpreter: {error}\n{program.text}", flush=True)
                continue
            statements.update(program.kinds)
            if difference is not None and difference.startswith("OutOfResources"):
                large += 1
            elif difference is not None:
                findings[options] += 1
                text = comparison.reduced(program, options, difference)
                facts = f"M={program.m} N={program.n} {program.dtypes} {options}"
                print(f"---- program {number} of seed {seed}, {facts}: {difference}\n{text}", flush=True)
            if number % 50 == 49:
                print(f"{number + 1} programs, {findings.total()} findings", flush=True)
        comparison.end()
    print(", ".join(f"{kind} {count}" for kind, count in statements.most_common()))
    print(
        f"{given.programs} programs of seed {seed}, {refused} that the interpreter refuses, {large} that need more "
        f"local memory than there is, {findings.total()} findings"
    )
    return int(findings.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
