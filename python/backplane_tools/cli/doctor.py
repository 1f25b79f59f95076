"""``torch-backplane doctor``: what stands between this machine and a working backend, one line each, with the cure."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import backplane_sdk
from torch_backplane._installed import installed_backends

_CXX20 = "#include <bit>\n#include <concepts>\nstatic_assert(std::bit_width(8u) == 4);\nint main() {}\n"


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, what was found, what to do about it."""

    what: str
    state: str
    """``ok``, ``warn`` (works without it) or ``FAIL``"""
    found: str
    cure: str = ""


def check_python() -> Iterator[Finding]:
    """Look at the interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info >= (3, 10)
    yield Finding(
        "python", "ok" if ok else "FAIL", f"{version}, {sys.prefix}", "" if ok else "use Python 3.10 or newer"
    )


def check_sdk() -> Iterator[Finding]:
    """Look at the SDK's own files."""
    source = backplane_sdk.source_dir()
    here = f"{backplane_sdk.__version__}, protocol {backplane_sdk.CORE_PROTOCOL}, {source}"
    missing = [
        part for part in ("include", "backend", "drivers", "check_driver", "cmake") if not (source / part).is_dir()
    ]
    if missing:
        yield Finding(
            "sdk", "FAIL", f"{here}: no {', '.join(missing)}", "pip install --force-reinstall torch-backplane"
        )
    else:
        yield Finding("sdk", "ok", here)


def torch_folder() -> Path:
    """Where the installed torch lies; a folder that does not exist if there is none. Imports nothing."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else Path("no-torch")


def torch_version() -> str | None:
    """The version of the installed torch, without importing it."""
    version = torch_folder() / "version.py"
    if not version.is_file():
        return None
    text = version.read_text(encoding="utf-8")
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", text, re.MULTILINE)
    return found.group(1) if found else None


def minor(version: str) -> str:
    """``"2.13"`` of ``"2.13.0+cpu"``."""
    return ".".join(version.split(".")[:2])


def check_torch() -> Iterator[Finding]:
    """Look at torch and its headers, without importing it."""
    version = torch_version()
    if version is None:
        yield Finding("torch", "FAIL", "not installed for this Python", "pip install 'torch==2.13.*'")
        return
    minors = backplane_sdk.TORCH_MINORS
    if minor(version) not in minors:
        cure = f"install one of {', '.join(minors)}"
        yield Finding("torch", "warn", f"{version}: this SDK is written for {minors[0]} to {minors[-1]}", cure)
    else:
        yield Finding("torch", "ok", version)
    if not (torch_folder() / "include" / "c10" / "core" / "Device.h").is_file():
        yield Finding(
            "torch headers", "FAIL", "absent", "install torch from a wheel; distribution packages split them off"
        )


def check_compiler() -> Iterator[Finding]:
    """Compile a C++20 program."""
    name = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if name is None:
        yield Finding("compiler", "FAIL", "no c++, g++ or clang++ on PATH", "install g++ 11 or newer, or set CXX")
        return
    first = _run([*name.split(), "--version"]).stdout.split("\n")[0] or name
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(_CXX20)
        built = _run([*name.split(), "-std=c++20", "-fsyntax-only", str(source)])
    if built.returncode == 0:
        yield Finding("compiler", "ok", first)
    else:
        yield Finding("compiler", "FAIL", f"{first}: cannot compile C++20", "use g++ 11 or clang 14 or newer: set CXX")


def check_tools() -> Iterator[Finding]:
    """Look at cmake and the build tools."""
    cmake = shutil.which("cmake")
    version = re.search(r"(\d+)\.(\d+)\.\d+", _run([cmake, "--version"]).stdout) if cmake else None
    if version is None:
        found = f"{cmake} does not run" if cmake else "not on PATH"
        yield Finding("cmake", "FAIL", found, "pip install cmake")
    elif (int(version[1]), int(version[2])) < (3, 25):
        yield Finding("cmake", "FAIL", f"{version[0]} is older than 3.25", "pip install --upgrade cmake")
    else:
        yield Finding("cmake", "ok", f"{version[0]}, {cmake}")
    ninja, make = shutil.which("ninja"), shutil.which("make")
    if ninja or make:
        yield Finding("build tool", "ok", str(ninja or make))
    else:
        yield Finding("build tool", "FAIL", "neither ninja nor make on PATH", "pip install ninja")
    if importlib.util.find_spec("scikit_build_core") is None:
        cure = "pip install scikit-build-core"
        yield Finding("scikit-build-core", "FAIL", "not installed, and builds run without isolation", cure)


def check_backends() -> Iterator[Finding]:
    """Look at every installed backend: its build, then the device, in a process of its own."""
    points = installed_backends()
    if not points:
        yield Finding("backend", "warn", "none is installed", "in the project's folder: make, or torch-backplane new")
        return
    packages = {point.module: point for point in points}
    if len(packages) > 1:
        names = ", ".join(sorted(packages))
        cure = "uninstall all but one, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want"
        yield Finding("backends", "FAIL", f"{len(packages)} want torch's one free slot: {names}", cure)
    for package, point in packages.items():
        if _is_ours(point):
            yield from check_backend(package)


def _is_ours(point: EntryPoint) -> bool:
    package = point.value.split(":")[0]
    return _build_info_path(package) is not None or "torch-backplane" in _requirements(point)


def _requirements(point: EntryPoint) -> str:
    for distribution in distributions():
        if any(p.group == point.group and p.value == point.value for p in distribution.entry_points):
            return " ".join(distribution.requires or [])
    return ""


def _build_info_path(package: str) -> Path | None:
    """Find ``_build_info.py`` in the package's folders, which in an editable install is the build folder, too."""
    spec = importlib.util.find_spec(package)  # imports nothing: the package is top-level
    folders = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    for folder in folders:
        if (folder / "_build_info.py").is_file():
            return folder / "_build_info.py"
    return None


def check_backend(package: str) -> Iterator[Finding]:
    """Look at one backend."""
    probe = _run([sys.executable, "-c", _BUILD_PROBE, package], autoload=False)
    if probe.returncode != 0:
        rebuild = "in the project's folder: pip install --no-build-isolation -e ."
        yield Finding(package, "FAIL", f"has no native code: {_last_line(probe.stderr)}", rebuild)
        return
    torch_minor, protocol, sdk, device = probe.stdout.strip().split("|")
    version = torch_version() or "none"
    rebuild = "pip install --no-build-isolation --force-reinstall --no-deps <its folder or URL>"
    if minor(version) != torch_minor:
        cure = f"pip install 'torch=={torch_minor}.*', or rebuild: {rebuild}"
        yield Finding(f"{package} abi", "FAIL", f"built for torch {torch_minor}, installed is {version}", cure)
    else:
        yield Finding(f"{package} abi", "ok", f"built for torch {torch_minor}")
    if int(protocol) != backplane_sdk.CORE_PROTOCOL:
        found = f"protocol {protocol} of torch-backplane {sdk}, installed is protocol {backplane_sdk.CORE_PROTOCOL}"
        yield Finding(
            f"{package} protocol", "FAIL", found, f"pip install 'torch-backplane~={sdk}', or rebuild: {rebuild}"
        )
    else:
        yield Finding(f"{package} protocol", "ok", f"{protocol}, built with torch-backplane {sdk}")

    driver = os.environ.get(f"{device.upper()}_DRIVER")
    if driver and not Path(driver).is_file():
        cure = (
            f"unset {device.upper()}_DRIVER for the package's own driver, or give the absolute path of an existing one"
        )
        yield Finding(f"{package} driver", "FAIL", f"{device.upper()}_DRIVER={driver}: no such file", cure)
        return
    used = _run([sys.executable, "-c", _DEVICE_PROBE, package], autoload=False)
    if used.returncode == 0:
        device_found, _, collectives = used.stdout.strip().partition("\n")
        yield Finding(f"{package} device", "ok", device_found)
        yield Finding(f"{package} collectives", "warn" if collectives.startswith("none") else "ok", collectives)
    else:
        check = "torch-backplane check-driver PATH examines the driver alone"
        yield Finding(f"{package} device", "FAIL", _last_line(used.stderr), check)
        return
    yield from check_integrations(package)


def check_integrations(package: str) -> Iterator[Finding]:
    """Look at the installed libraries that choose a device by themselves: those that are asked for are imported."""
    asked = _run([sys.executable, "-m", "torch_backplane.integrations._probe", package], autoload=False)
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


_BUILD_PROBE = """
import importlib.util, sys, types
from pathlib import Path
package = sys.argv[1]
spec = importlib.util.find_spec(package)
shell = types.ModuleType(package)
shell.__path__ = list(spec.submodule_search_locations)
shell.__spec__ = spec
sys.modules[package] = shell
info = __import__(package + "._build_info", fromlist=["*"])
print(info.TORCH_MINOR, info.CORE_PROTOCOL, info.SDK_VERSION, info.DEVICE, sep="|")
"""

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
from torch_backplane import process_group
try:
    print("{}, {}: {}".format(process_group.backend_name(), *process_group.choose_engine()))
except (ValueError, RuntimeError) as error:
    print("none:", error)
"""


def _run(command: list[str | None], autoload: bool = True) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ) if autoload else {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    words = [word for word in command if word is not None]
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
    failed = sum(finding.state == "FAIL" for finding in findings)
    if failed:
        raise click.exceptions.Exit(1)
