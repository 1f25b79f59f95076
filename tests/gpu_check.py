"""Runs everything that needs an NVIDIA GPU, on the machine's own Python and torch: ``make gpu-check``.

Builds the reference backend over the driver ``cuda``, holds the driver against the contract, runs the device tests, the
conformance suites and the benchmarks beside torch.cuda, and writes a report as JSON and HTML into build/gpu. Downloads
nothing: what is absent is named, with how to get it. ``--part NAME`` runs one alone; each takes less than 8 minutes, or
ends as "too slow".
"""

from __future__ import annotations

import argparse
import ctypes
import html
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "gpu"
DEVICE = "mydevice"  # torch.cuda stays torch's
LIMIT_S = 480
TEMPLATE = ROOT / "{{cookiecutter.package_name}}" / "python" / "{{cookiecutter.package_name}}" / "__init__.py"


@dataclass
class Outcome:
    """What a part found. ``status``: passed, failed, too slow, or not run."""

    part: str
    status: str
    seconds: float = 0.0
    summary: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)


# ---- what must be there


def module_missing(name: str) -> bool:
    """Whether Python cannot import it."""
    return importlib.util.find_spec(name) is None


def program_missing(*names: str) -> bool:
    """Whether none of them is on the path."""
    return all(shutil.which(name) is None for name in names)


def gpu_trouble() -> str:
    """Why there is no GPU to run on; empty if there is one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"there is no NVIDIA GPU here: {error}. libcuda.so.1 comes with NVIDIA's driver"
    status, count = cuda.cuInit(0), ctypes.c_int()
    if status or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return f"there is no NVIDIA GPU here: libcuda.so.1 finds {count.value} (cuInit gave {status})"
    return ""


def torch_trouble() -> str:
    """Why this Python's torch will not do; empty if it will."""
    if module_missing("torch"):
        return f"{sys.executable} has no torch: install a CUDA build of it, or name another Python (make PYTHON=...)"
    code = "import torch; print(torch.__version__, torch.version.cuda or '-', torch.cuda.is_available())"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    words = done.stdout.split()
    if done.returncode or len(words) != 3:
        return f"torch cannot be imported: {done.stderr.strip().splitlines()[-1:]}"
    version, cuda, available = words
    sys.path.insert(0, str(ROOT / "python"))
    from backplane_sdk import TORCH_MINORS

    if version.rsplit("+", 1)[0].rsplit(".", 1)[0] not in TORCH_MINORS:
        return f"torch {version} is none of {', '.join(TORCH_MINORS)}"
    if cuda == "-":
        return f"torch {version} is no CUDA build: there is no torch.cuda to compare with"
    return "" if available == "True" else f"torch {version} finds no GPU (torch.cuda.is_available() is False)"


def missing(parts: list[str]) -> list[str]:
    """What these parts need and this machine has not, a sentence each."""
    found = [trouble for trouble in (gpu_trouble(), torch_trouble()) if trouble]
    if program_missing(os.environ.get("CXX", "g++").split()[0], "clang++"):
        found.append("no C++ compiler: install g++ 11 or clang 14 or newer, or set CXX")
    if "build" in parts:
        found += [f"no {name}: pip install {name}" for name in ("cmake", "ninja") if program_missing(name)]
    modules = {
        "device tests": ["pytest", "numpy"],
        "graphs": ["pytest", "numpy"],
        "device-share": ["click", "rich", "expecttest", "jinja2", "numpy", "scipy"],
        "operators": ["click", "rich", "expecttest", "jinja2", "numpy", "scipy"],
    }
    wanted = sorted({name for part in parts for name in modules.get(part, [])})
    return found + [f"no Python module {name}: pip install {name}" for name in wanted if module_missing(name)]


# ---- parts


def environment() -> dict[str, str]:
    """That of each part: the package that was built, and the SDK's Python, before what is installed."""
    path = os.pathsep.join([str(OUT), str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, f"{DEVICE.upper()}_CACHE_DIR": str(OUT / "kernels")}


def run(words: list[str | Path], log: str, **more: str) -> tuple[str, str]:
    """A program, with its output in a file: the status and the output's text."""
    path = OUT / f"{log}.log"
    with path.open("w") as output:
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=ROOT,
            env={**environment(), **more},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return "too slow", f"ended after {LIMIT_S} s; {path.relative_to(ROOT)} tells how far it came"
    return ("passed" if code == 0 else "failed"), path.read_text(errors="replace")


def package() -> None:
    """The Python side of the backend, and what tells Python and pytest that it is installed."""
    folder = OUT / DEVICE
    text = TEMPLATE.read_text()
    (folder / "__init__.py").write_text(re.sub(r"\{\{ cookiecutter\.\w+ \}\}", DEVICE, text))
    facts = OUT / "backplane_gpu_check-0.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: backplane-gpu-check\nVersion: 0\n")
    (facts / "entry_points.txt").write_text(
        f"[torch.backends]\n{DEVICE} = {DEVICE}:_autoload\n[pytest11]\nbackplane = torch_backplane.testing.plugin\n"
    )


def build() -> Outcome:
    """The reference backend over the driver cuda."""
    words: list[str | Path] = ["cmake", "-S", ROOT, "-B", OUT, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]
    status, text = run([*words, f"-DBACKPLANE_DEVICE={DEVICE}", "-DBACKPLANE_DRIVER=cuda"], "configure")
    if status == "passed":
        status, text = run(["cmake", "--build", OUT], "build")
    if status == "passed":
        package()
    return Outcome("build", status, summary=last_line(text))


def check_driver() -> Outcome:
    """The contract, kernels and the dialect included."""
    junit = OUT / "check-driver.xml"
    program, driver = OUT / DEVICE / "bin" / "backplane-check-driver", OUT / DEVICE / "lib" / f"lib{DEVICE}_driver.so"
    status, text = run([program, driver, f"--junit={junit}", "--time-limit", "60"], "check-driver")
    return Outcome("check-driver", status, summary=last_line(text), rows=failures_of(junit))


def device_tests() -> Outcome:
    """tests/device on the GPU: what stands below compiled kernels, which `operators` and `device-share` run."""
    junit = OUT / "device-tests.xml"
    words = [sys.executable, "-m", "pytest", "tests/device", "-m", "not long", "-q", f"--junitxml={junit}"]
    if not module_missing("xdist"):
        words += ["-n", str(min(8, os.cpu_count() or 1)), "--dist", "loadgroup"]
    status, text = run(words, "device-tests")
    return Outcome("device tests", status, summary=last_line(text), rows=failures_of(junit))


def graphs() -> Outcome:
    """Graphs of compiled kernels, by CUDA's: a step with dropout that is replayed has eager's values."""
    junit = OUT / "graphs.xml"
    tests = [*map(str, sorted((ROOT / "tests" / "device").rglob("test_graph*.py"))), "tests/portable/test_graph.py"]
    words = [sys.executable, "-m", "pytest", *tests, "-q", f"--junitxml={junit}"]
    status, text = run(words, "graphs", **{f"{DEVICE.upper()}_KERNELS": "strict"})
    return Outcome("graphs", status, summary=last_line(text), rows=failures_of(junit))


def collectives() -> Outcome:
    """torch.distributed over the driver's own collectives: a rank for each GPU, eight at most."""
    count = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count))
    ranks = ["--nnodes", "1", "--nproc-per-node", str(max(1, min(8, count.value)))]
    words: list[str | Path] = [sys.executable, "-m", "torch.distributed.run", "--standalone", *ranks]
    status, text = run([*words, ROOT / "tests" / "gpu_collectives.py", DEVICE], "collectives")
    return Outcome("collectives", status, summary=last_line(text))


def conformance(name: str, log: str, *words: str) -> Outcome:
    """A suite of torch-backplane conformance."""
    command: list[str | Path] = [sys.executable, "-m", "backplane_tools", "conformance", "--device", DEVICE, *words]
    status, text = run([*command, "--json", OUT / f"{log}.json", "--html", OUT / f"{log}.html"], log)
    return Outcome(name, status, summary=last_line(text))


def beside_cuda() -> Outcome:
    """The benchmarks, with torch.cuda in the same process."""
    found = OUT / "beside.json"
    found.unlink(missing_ok=True)
    status, text = run(
        [sys.executable, "-m", "benchmarks.beside", "--device", DEVICE, "--other", "cuda", "--json", found], "beside"
    )
    rows = json.loads(found.read_text())["rows"] if found.exists() else []
    return Outcome("bench", status, summary=last_line(text), rows=rows)


PARTS: dict[str, Callable[[], Outcome]] = {
    "build": build,
    "check-driver": check_driver,
    "device tests": device_tests,
    "graphs": graphs,
    "collectives": collectives,
    "operators": lambda: conformance("operators", "operators", "--suite", "ops-sample", "--dtype", "float32"),
    "device-share": lambda: conformance("device-share", "device-share", "--suite", "device-share"),
    "bench": beside_cuda,
}


def last_line(text: str) -> str:
    """What a program said at the end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def failures_of(junit: Path) -> list[dict[str, Any]]:
    """The cases that failed, by a JUnit file."""
    if not junit.exists():
        return []
    cases = ElementTree.parse(junit).getroot().iter("testcase")
    failed = [
        (case, case.find("failure") if case.find("failure") is not None else case.find("error")) for case in cases
    ]
    return [
        {"name": case.get("name"), "error": why.get("message", "")[:300]} for case, why in failed if why is not None
    ]


# ---- the report


def machine() -> dict[str, str]:
    """What the figures were seen on."""
    code = (
        "import torch; p = torch.cuda.get_device_properties(0); "
        "print(p.name, p.multi_processor_count, p.total_memory >> 20, torch.__version__, torch.version.cuda, sep='|')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    words = done.stdout.strip().split("|")
    facts = dict(zip(("gpu", "multiprocessors", "memory MiB", "torch", "CUDA"), words, strict=False))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {**facts, "python": platform.python_version(), "commit": commit, "system": platform.platform()}


def page(report: dict[str, Any]) -> str:
    """The report as one HTML page."""

    def table(head: list[str], rows: list[list[Any]]) -> str:
        def line(cells: list[Any], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

        return "<table>" + line(head, "th") + "".join(line(row, "td") for row in rows) + "</table>"

    parts = report["parts"]
    text = "<!doctype html><meta charset='utf-8'><title>Backplane on an NVIDIA GPU</title>"
    text += "<style>body{font:15px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
    text += "td,th{border:1px solid #999;padding:.2em .6em;text-align:left}</style><h1>Backplane on an NVIDIA GPU</h1>"
    text += table(["", ""], [[key, value] for key, value in report["machine"].items()])
    text += table(
        ["part", "", "seconds", "at the end"],
        [[part["part"], part["status"], round(part["seconds"]), part["summary"]] for part in parts],
    )
    for part in parts:
        if not part["rows"]:
            continue
        text += f"<h2>{html.escape(part['part'])}</h2>"
        if part["part"] == "bench":
            rows = [
                [
                    row["name"],
                    row.get("error") or f"{row['best']:.2f}",
                    f"{'>=' if row['speed'] else '<='} {row['budget']}",
                ]
                for row in part["rows"]
            ]
            text += table(["beside torch.cuda", "quotient", "budget"], rows)
        else:
            text += table(["failed", "why"], [[row["name"], row["error"]] for row in part["rows"]])
    return text + "\n"


def write_report(outcomes: list[Outcome], facts: dict[str, str]) -> None:
    """Parts of earlier runs stay, unless they were run again."""
    path = OUT / "gpu-check.json"
    kept: dict[str, Any] = {}
    if path.exists():
        kept = {part["part"]: part for part in json.loads(path.read_text())["parts"]}
    kept |= {outcome.part: asdict(outcome) for outcome in outcomes}
    report = {"machine": facts, "parts": [kept[name] for name in PARTS if name in kept]}
    path.write_text(json.dumps(report, indent=1))
    (OUT / "gpu-check.html").write_text(page(report))


def main(words: list[str] | None = None) -> int:
    """Run what is asked for; 1 if something failed, 2 if the machine lacks something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this one; repeatable")
    options = parser.parse_args(words)
    parts = options.part or list(PARTS)
    absent = missing(parts)
    if not absent and "build" not in parts and not (OUT / DEVICE / "__init__.py").exists():
        absent = ["nothing is built yet: run the part build first (make gpu-check ARGS='--part build')"]
    if absent:
        print("make gpu-check cannot run here:")
        for sentence in absent:
            print(f"  {sentence}")
        return 2
    OUT.mkdir(parents=True, exist_ok=True)
    facts = machine()
    outcomes: list[Outcome] = []
    for name in parts:
        if any(done.part == "build" and done.status != "passed" for done in outcomes):
            outcomes.append(Outcome(name, "not run", summary="the build failed"))
            write_report(outcomes, facts)
            continue
        print(f"==== {name}", flush=True)
        begin = time.monotonic()
        outcome = PARTS[name]()
        outcome.seconds = time.monotonic() - begin
        outcomes.append(outcome)
        print(f"{outcome.status}: {outcome.summary}", flush=True)
        write_report(outcomes, facts)
    print("\n==== summary")
    for outcome in outcomes:
        print(f"{outcome.status:<9} {outcome.seconds:7.0f} s  {outcome.part}")
    print(f"The report: {OUT / 'gpu-check.html'}, {OUT / 'gpu-check.json'}")
    return int(any(outcome.status != "passed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
