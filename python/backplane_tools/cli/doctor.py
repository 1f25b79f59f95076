"""``torch-backplane doctor``: what prevents a working backend on this machine, one line each, with the cure."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import backplane_sdk
from backplane_sdk import metadata
from backplane_tools.cli.output import exit_if
from torch_backplane._installed import installed_backends, package_folders

_CXX20 = "#include <bit>\n#include <concepts>\nstatic_assert(std::bit_width(8u) == 4);\nint main() {}\n"


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, what was found, what to do about it."""

    what: str
    state: str
    """``ok``, ``warn`` (works without it) or ``FAIL``"""
    found: str
    cure: str = ""


def verdict(what: str, found: str, cure: str = "") -> Finding:
    """A finding that fails if there is something to do about it."""
    return Finding(what, "FAIL" if cure else "ok", found, cure)


def check_python() -> Iterator[Finding]:
    """Look at the interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    cure = "" if sys.version_info >= (3, 10) else "use Python 3.10 or newer"
    yield verdict("python", f"{version}, {sys.prefix}", cure)


def check_sdk() -> Iterator[Finding]:
    """Look at the SDK's own files."""
    source = backplane_sdk.source_dir()
    here = f"{backplane_sdk.__version__}, protocol {backplane_sdk.CORE_PROTOCOL}, {source}"
    parts = ("include", "backend", "drivers", "check_driver", "cmake")
    if missing := [part for part in parts if not (source / part).is_dir()]:
        cure = "pip install --force-reinstall torch-backplane"
        yield verdict("sdk", f"{here}: no {', '.join(missing)}", cure)
    else:
        yield verdict("sdk", here)


def torch_folder() -> Path:
    """The folder of the installed torch, or one that does not exist. Imports nothing."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else Path("no-torch")


def torch_version() -> str:
    """The version of the installed torch, without importing it; empty if there is none."""
    with suppress(OSError, RuntimeError):
        return metadata.torch_version()
    return ""


def minor(version: str) -> str:
    """``"2.13"`` of ``"2.13.0+cpu"``."""
    return ".".join(version.split(".")[:2])


def check_torch() -> Iterator[Finding]:
    """Look at torch and its headers, without importing it."""
    version = torch_version()
    if not version:
        yield verdict("torch", "not installed for this Python", "pip install 'torch==2.13.*'")
        return
    minors = backplane_sdk.TORCH_MINORS
    if minor(version) not in minors:
        cure = f"install one of {', '.join(minors)}"
        yield Finding("torch", "warn", f"{version}: this SDK is written for {minors[0]} to {minors[-1]}", cure)
    else:
        yield verdict("torch", version)
    if not (torch_folder() / "include" / "c10" / "core" / "Device.h").is_file():
        yield verdict("torch headers", "absent", "install torch from a wheel; distribution packages split them off")


def check_compiler() -> Iterator[Finding]:
    """Compile a C++20 program."""
    name = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if name is None:
        yield verdict("compiler", "no c++, g++ or clang++ on PATH", "install g++ 11 or newer, or set CXX")
        return
    first = _run([*name.split(), "--version"]).stdout.split("\n")[0] or name
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(_CXX20)
        built = _run([*name.split(), "-std=c++20", "-fsyntax-only", str(source)])
    if built.returncode == 0:
        yield verdict("compiler", first)
    else:
        yield verdict("compiler", f"{first}: cannot compile C++20", "use g++ 11 or clang 14 or newer: set CXX")


def check_tools() -> Iterator[Finding]:
    """Look at cmake and the build tools."""
    cmake = shutil.which("cmake")
    version = re.search(r"(\d+)\.(\d+)\.\d+", _run([cmake, "--version"]).stdout) if cmake else None
    if version is None:
        found = f"{cmake} does not run" if cmake else "not on PATH"
        yield verdict("cmake", found, "pip install cmake")
    elif (int(version[1]), int(version[2])) < (3, 25):
        yield verdict("cmake", f"{version[0]} is older than 3.25", "pip install --upgrade cmake")
    else:
        yield verdict("cmake", f"{version[0]}, {cmake}")
    if tool := shutil.which("ninja") or shutil.which("make"):
        yield verdict("build tool", tool)
    else:
        yield verdict("build tool", "neither ninja nor make on PATH", "pip install ninja")
    if importlib.util.find_spec("scikit_build_core") is None:
        cure = "pip install scikit-build-core"
        yield verdict("scikit-build-core", "not installed, and builds run without isolation", cure)


def check_backends() -> Iterator[Finding]:
    """Look at every installed backend: its build, then the device, in a child process."""
    points = installed_backends()
    if not points:
        yield Finding("backend", "warn", "none is installed", "in the project's folder: make, or torch-backplane new")
        return
    packages = {point.module: point for point in points}
    if len(packages) > 1:
        names = ", ".join(sorted(packages))
        cure = "uninstall all but one, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want"
        yield verdict("backends", f"{len(packages)} want torch's one free slot: {names}", cure)
    for package, point in packages.items():
        if _is_ours(point):
            yield from check_backend(package)


def _is_ours(point: EntryPoint) -> bool:
    return _build_of(point.value.split(":")[0]) is not None or any(
        "torch-backplane" in " ".join(distribution.requires or [])
        for distribution in distributions()
        if any(p.group == point.group and p.value == point.value for p in distribution.entry_points)
    )


def _build_of(package: str) -> dict[str, Any] | None:
    """What a package was built from and for; None if it has no native code. Does not import it."""
    files = (folder / "_build_info.py" for folder in package_folders(package))
    return next((runpy.run_path(str(file)) for file in files if file.is_file()), None)


def check_backend(package: str) -> Iterator[Finding]:
    """Look at one backend."""
    build = _build_of(package)
    if build is None:
        rebuild = "in the project's folder: pip install --no-build-isolation -e ."
        yield verdict(package, "has no native code: there is no _build_info.py in its folders", rebuild)
        return
    torch_minor, protocol, sdk = build["TORCH_MINOR"], build["CORE_PROTOCOL"], build["SDK_VERSION"]
    version = torch_version() or "none"
    rebuild = "pip install --no-build-isolation --force-reinstall --no-deps <its folder or URL>"
    if minor(version) != torch_minor:
        cure = f"pip install 'torch=={torch_minor}.*', or rebuild: {rebuild}"
        yield verdict(f"{package} abi", f"built for torch {torch_minor}, installed is {version}", cure)
    else:
        yield verdict(f"{package} abi", f"built for torch {torch_minor}")
    if protocol != backplane_sdk.CORE_PROTOCOL:
        found = f"protocol {protocol} of torch-backplane {sdk}, installed is protocol {backplane_sdk.CORE_PROTOCOL}"
        yield verdict(f"{package} protocol", found, f"pip install 'torch-backplane~={sdk}', or rebuild: {rebuild}")
    else:
        yield verdict(f"{package} protocol", f"{protocol}, built with torch-backplane {sdk}")

    variable = f"{build['DEVICE'].upper()}_DRIVER"
    driver = os.environ.get(variable)
    if driver and not Path(driver).is_file():
        cure = f"unset {variable} for the package's own driver, or give the absolute path of an existing one"
        yield verdict(f"{package} driver", f"{variable}={driver}: no such file", cure)
        return
    used = _run([sys.executable, "-c", _DEVICE_PROBE, package])
    if used.returncode == 0:
        device_found, kernels, collectives = used.stdout.strip().split("\n", 2)
        yield verdict(f"{package} device", device_found)
        yield Finding(f"{package} kernels", "warn" if kernels.startswith("none") else "ok", kernels)
        yield Finding(f"{package} collectives", "warn" if collectives.startswith("none") else "ok", collectives)
    else:
        check = "torch-backplane check-driver PATH examines the driver alone"
        yield verdict(f"{package} device", _last_line(used.stderr), check)
        return
    yield from check_integrations(package)
    yield check_triton(package)


def check_triton(package: str) -> Finding:
    """Look at Triton, in a process of its own: whether its kernels are compiled for the device."""
    asked = _run([sys.executable, "-m", "torch_backplane.triton._probe", package])
    if asked.returncode != 0:
        found = f"the import ended with status {asked.returncode}: {_last_line(asked.stderr)}"
        return Finding("triton", "warn", found, "pip install --force-reinstall --no-deps triton==<its release>")
    answer = json.loads(asked.stdout.strip().rpartition("\n")[2])
    return Finding("triton", "warn" if answer["cure"] else "ok", **answer)


def check_integrations(package: str) -> Iterator[Finding]:
    """Look at the installed libraries that choose a device by themselves: those that are asked for are imported."""
    asked = _run([sys.executable, "-m", "torch_backplane.integrations._probe", package])
    if asked.returncode != 0:
        yield Finding(f"{package} integrations", "FAIL", _last_line(asked.stderr))
    for line in asked.stdout.splitlines() if asked.returncode == 0 else ():
        one = json.loads(line)
        what, version = f"with {one['library']}", one["version"]
        if one["error"]:
            yield Finding(what, "warn", f"{version}: {one['error']}")
        elif one["state"] == "applied":
            yield Finding(what, "ok", f"{version}: {'; '.join(one['done'])}")
        elif one["chosen"]:
            cure = f"install {one['library']} {one['tried']}"
            yield Finding(what, "warn", f"{version}: {one['state']}, {'; '.join(one['done'])}", cure)
        elif os.environ.get(one["variable"]):
            yield Finding(what, "ok", f"{version}: off, as {one['variable']} says")
        else:
            yield Finding(what, "warn", f"{version}: off, it chooses the device by itself", f"{one['variable']}=auto")


_DEVICE_PROBE = """
import importlib, sys
package = importlib.import_module(sys.argv[1])
import torch
from torch_backplane import _backend
name = _backend.device
module = torch.get_device_module(name)
if module.device_count() == 0:
    sys.exit("no device: " + (_backend.C.driver.info()["refusal"] or "the driver has none, or none is visible"))
answer = torch.arange(8, device=name).cpu().tolist()
if answer != list(range(8)):
    sys.exit(f"a copy to the device and back gave {answer}")
print(f"{module.device_count()} x {module.get_device_name(0)}, {_backend.C.driver.info()['path']}")
from torch_backplane import compiler, process_group
if why := compiler.why_none():
    print("none:", why)
else:
    target = compiler.target()
    size = f"groups of {target.group_size}, {target.local_bytes >> 10} KiB of local memory"
    unused = [f"not used by the SDK's kernels: {', '.join(target.features)}"] if target.features else []
    print("; ".join([size, *compiler.composed(), *unused]))
try:
    print("{}, {}: {}".format(process_group.backend_name(), *process_group.choose_engine()))
except (ValueError, RuntimeError) as error:
    print("none:", error)
"""


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    try:
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().split("\n") if line.strip()]
    return lines[-1] if lines else "it ended and printed nothing"


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    check_python,
    check_sdk,
    check_torch,
    check_compiler,
    check_tools,
    check_backends,
)


@click.command()
def doctor() -> None:
    """Explain a setup that does not work: one line each for compiler, cmake, torch, build, driver, with the cure.

    The exit status is 1 if something fails.
    """
    findings = [finding for check in CHECKS for finding in check()]
    table = Table.grid(padding=(0, 2))
    for style in (None, "bold", None):
        table.add_column(style=style, no_wrap=style is not None, overflow="fold")
    colours = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}
    for finding in findings:
        text = finding.found + (f"\n-> {finding.cure}" if finding.cure else "")
        table.add_row(f"[{colours[finding.state]}]{finding.state}[/]", finding.what, text)
    Console(highlight=False).print(table)
    exit_if(any(finding.state == "FAIL" for finding in findings))
