"""Allocator, pinned memory and storages of ``lib<device>.so`` from C++: contracts E03, E04, E06, E07, E18, E40.

The cases are in ``cpp/memory_test.cpp``; each runs in a process of its own.
"""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import backplane_sdk

pytestmark = pytest.mark.once

CONFIGURATIONS = ["kind=unified,stream=async", "kind=discrete,stream=async", "kind=discrete,stream=inline"]


@pytest.fixture(scope="module")
def compiled(backend_package, device_module, tmp_path_factory):
    """``compiled("memory_test")``: a program of ``cpp/``, linked to the device's library."""
    folder = tmp_path_factory.mktemp("cpp")
    return functools.cache(lambda program: compile_program(program, folder))


def compile_program(program, folder):
    from torch_backplane.paths import library_paths

    torch_dir = Path(torch.__file__).parent
    (library,) = library_paths()
    source = backplane_sdk.source_dir()
    output = folder / program
    name = torch.utils.backend_registration._privateuse1_backend_name
    command = [os.environ.get("CXX") or shutil.which("c++") or "g++", *"-std=c++20 -O1 -Wall -Wextra -Werror".split()]
    command += ["-isystem", torch_dir / "include", "-I", source / "include", "-I", source / "backend"]
    command += [Path(__file__).parents[1] / "cpp" / f"{program}.cpp", "-o", output]
    command += ["-L", library, f"-l{name}", f"-Wl,-rpath,{library}"]
    torch_libraries = torch_dir / "lib"
    command += ["-L", torch_libraries, "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_libraries}"]
    subprocess.run(command, check=True)
    return output


def output_of(command, name, options):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(name.upper() + "_ALLOC")}
    environment[f"{name.upper()}_OPTIONS"] = options
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.long
@pytest.mark.parametrize("options", CONFIGURATIONS)
@pytest.mark.requires("host_exec", "multi_device", "streams")
def test_E03_E04_E06_E07_E18_E40_from_cpp(compiled, name, options):
    command = [compiled("memory_test"), *(["--without", "held_"] if "inline" in options else [])]
    assert int(output_of(command, name, options).split()[-4]) >= 20


@pytest.mark.long
@pytest.mark.parametrize("options", CONFIGURATIONS)
@pytest.mark.requires("vmm", "streams")
def test_threads_share_the_allocator(compiled, name, options):
    """Allocate, free elsewhere, record streams, switch settings, caching and recording, all at once."""
    assert " 0 errors" in output_of([compiled("allocator_stress"), "3000", "4"], name, options)
