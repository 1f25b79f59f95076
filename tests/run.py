"""Runs the test suite in parts, all of them whatever fails, with one summary at the end: `make test`, `make test-all`.

`make test` is the tests on the default kind of device (unified memory, asynchronous streams), half of the device tests
on the kind that differs from it in both, others at each commit, and compiled kernels; the first leaves out those marked
long. The device tests run without compiled kernels, but for those marked kernels.
`--sample 1/4` adds an eighth of the long tests, and a quarter of the device tests on each other kind, others at each
commit; `--all` adds everything. What needs packages of the system is in parts of its own, left out where they are
missing; `--system` runs these parts alone. `--smoke` is what another torch may break, in place of all that:
`make test-torch`. Words that are left go to pytest, and it alone runs, on the default kind.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import system_packages

ROOT = Path(__file__).resolve().parents[1]
MINIMAL = ROOT / "build" / "demo" / "minimal" / "libminimal_driver.so"
OPENCL = ROOT / "build" / "demo" / "opencl" / "libopencl_driver.so"
VULKAN = ROOT / "build" / "demo" / "vulkan" / "libvulkan_driver.so"
DEVICE = ["tests/device", "-m", "not once"]
GRAPHS = [*map(str, sorted((ROOT / "tests" / "device").rglob("test_graph*.py"))), "tests/portable/test_graph.py"]
# What stands on private parts of torch, or lists what it has, is tried whole on another torch.
WHOLE = [
    str(path)
    for name in ("profiler*", "trace_command", "graph*", "dlpack*", "host_view", "cuda_only", "device_module")
    for path in sorted((ROOT / "tests" / "device").rglob(f"test_{name}.py"))
]
GENERATED = [
    f"tests/portable/test_compile{part}.py"
    for part in ("", "_kernels", "_ops", "_coverage", "_fusions", "_combined", "_targets", "_random")
]
SYSTEM = [
    f"tests/{name}.py"
    for name in (
        *(
            "driver/test_opencl",
            "driver/test_sim_compiler",
            "driver/test_vulkan",
            "host/test_preludes",
            "host/test_spirv",
        ),
        *("portable/test_compilers", "portable/test_sdk_drivers"),
    )
]
# What tests/portable asks for; compiled kernels stay in the checkout from one run to the next.
COMPILED = {"MYDEVICE_KERNELS": "strict"}


@dataclass
class Part:
    """One run of pytest."""

    name: str
    arguments: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    in_test: str = ""  # what `make test` takes of it: "1/1" is all, of less it takes others at each commit
    thinned: int = 1  # of what --sample names it takes one in so many
    in_sample: bool = True  # else of --all alone
    system: bool = False  # needs what system_packages.py names


PARTS = [
    Part("unified, asynchronous", ["-m", "not long and not system"], in_test="1/1"),
    Part("discrete, inline", DEVICE, {"MYDEVICE_OPTIONS": "kind=discrete,stream=inline"}, in_test="1/2"),
    Part("compiled kernels", ["tests/portable", "-m", "not long and not system"], COMPILED, in_test="1/1"),
    Part("compiled kernels, device tests", ["tests/device", "-m", "kernels and not long"], COMPILED, in_test="1/1"),
    Part("long tests", ["-m", "long and not system"], thinned=2),
    Part("compiled kernels, long tests", ["tests/portable", "-m", "long and not system"], COMPILED, thinned=2),
    Part(
        "torch.compile, groups of 64 items",
        [*GENERATED, "-m", "not long"],
        {**COMPILED, "MYDEVICE_OPTIONS": "items=64"},
    ),
    Part(
        "compiled kernels, every dtype",
        ["tests/portable", "-m", "not system"],
        {**COMPILED, "MYDEVICE_OPTIONS": "kind=discrete,stream=inline"},
        in_sample=False,
    ),
    Part(
        "compiled kernels, device tests on discrete memory",
        ["tests/device", "-m", "kernels and not once"],
        {**COMPILED, "MYDEVICE_OPTIONS": "kind=discrete,stream=inline"},
    ),
    Part("discrete, asynchronous", DEVICE, {"MYDEVICE_OPTIONS": "kind=discrete,stream=async"}),
    Part("unified, inline", DEVICE, {"MYDEVICE_OPTIONS": "kind=unified,stream=inline"}),
    Part("minimal driver", DEVICE, {"MYDEVICE_OPTIONS": "devices=2", "MYDEVICE_DRIVER": str(MINIMAL)}),
    Part("PoCL, lavapipe and clang", [*SYSTEM, "-m", "system and not long"], COMPILED, in_test="1/1", system=True),
    Part("PoCL, lavapipe and clang, long tests", [*SYSTEM, "-m", "system and long"], COMPILED, thinned=2, system=True),
    Part(
        "graphs on PoCL",
        GRAPHS,
        {**COMPILED, "MYDEVICE_DRIVER": str(OPENCL)},
        system=True,
    ),
    Part(
        "OpenCL on PoCL",
        ["tests/device", "-m", "not once and not long"],
        {"MYDEVICE_DRIVER": str(OPENCL)},
        system=True,
    ),
    Part(
        "graphs on lavapipe",
        GRAPHS,
        {**COMPILED, "MYDEVICE_DRIVER": str(VULKAN), "MYDEVICE_OPTIONS": "device_type=cpu"},
        system=True,
    ),
    Part(
        "Vulkan on lavapipe",
        ["tests/device", "-m", "not once and not long"],
        {"MYDEVICE_DRIVER": str(VULKAN), "MYDEVICE_OPTIONS": "device_type=cpu"},
        system=True,
    ),
]

# With the part of the tests that is run, others at each commit.
SMOKE = [
    (Part("private surface of torch", ["tests/host/test_drift.py"]), "1/1"),
    (Part("torch.compile", [GENERATED[0], *GENERATED[-2:]], COMPILED), "1/1"),
    (Part("profiler, graphs, DLPack, what torch has", [*WHOLE, "-m", "not long"]), "1/1"),
    (Part("compiled kernels", ["tests/portable", "-m", "not long"], COMPILED), "1/6"),
    (Part("compiled kernels, device tests", ["tests/device", "-m", "kernels and not long"], COMPILED), "1/1"),
    (Part("unified, asynchronous", ["tests/device", "-m", "not long"]), "1/6"),
]


def commit() -> str:
    """What the sample depends on."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()[:12] or "0"


def sample(taken: str) -> list[str]:
    """Words for pytest: to take K of N tests."""
    return [] if taken == "1/1" else ["--sample", f"{taken}:{commit()}"]


def part_of(text: str) -> str:
    """K/N, of an argument."""
    k, _, n = text.partition("/")
    if not (k.isdigit() and n.isdigit() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"K/N is needed, such as 1/16, not {text!r}")
    return text


def run(part: Part, jobs: str, extra: list[str]) -> tuple[int, float]:
    """Run one part; its exit status and seconds."""
    print(f"\n==== {part.name} {' '.join(extra)}", flush=True)
    begin = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-n", jobs, "--dist", "loadgroup", *part.arguments, *extra]
    kernels = {"MYDEVICE_CACHE_DIR": str(ROOT / "build" / "kernels")}
    env = {"OMP_NUM_THREADS": "1", **kernels, **os.environ, **part.env}
    status = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and "--sample" in extra:
        status = 0  # a sample of few tests may have none
    return status, time.monotonic() - begin


def main() -> int:
    """Run what is asked for; 1 if a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--jobs", default="2", help="processes of pytest-xdist")
    parser.add_argument("--all", action="store_true", help="the whole matrix")
    parser.add_argument("--smoke", action="store_true", help="what another torch may break")
    parser.add_argument("--system", action="store_true", help="what needs packages of the system, and that alone")
    parser.add_argument(
        "--sample", metavar="K/N", type=part_of, help="that part of the device tests on the other kinds"
    )
    options, words = parser.parse_known_args()
    parts = [(part, sample(part.in_test)) for part in PARTS if part.in_test and not options.all]
    parts += [(part, []) for part in PARTS if options.all]
    if options.sample and not options.all:
        for part in PARTS:
            if part.in_sample and not part.in_test:
                k, n = map(int, options.sample.split("/"))
                parts.append((part, sample(f"{k}/{n * part.thinned}")))
    if options.system:
        parts = [(part, extra) for part, extra in parts if part.system]
    if options.smoke:
        parts = [(part, sample(taken)) for part, taken in SMOKE]
    if words:
        parts = [(Part("chosen"), words)]
    missing = system_packages.missing()
    absent = [part for part, _ in parts if part.system and missing]
    results = [(part, *run(part, options.jobs, extra)) for part, extra in parts if part not in absent]
    print("\n==== summary")
    for part in absent:
        print(f"left out{'':14} {part.name}: {missing}")
    for part, status, seconds in results:
        print(f"{'passed' if status == 0 else f'FAILED ({status})':<12} {seconds:7.0f} s  {part.name}")
    return int(any(status for _, status, _ in results))


if __name__ == "__main__":
    sys.exit(main())
