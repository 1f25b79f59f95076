"""What the device tests share. ``device`` and ``device_module`` are the pytest plugin's."""

import gc
import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
import shims
import torch
from filelock import FileLock
from own_operators import Operators
from warm import WarmProcesses

import backplane_sdk
from torch_backplane.testing import process

if torch.__version__ < (2, 13):  # its import lists the operators, and fails on one that a test has removed
    import torch._inductor.decomposition


def pytest_collection_modifyitems(config, items):
    """Tests that need compiled kernels run in another part (tests/run.py)."""
    if os.environ["MYDEVICE_KERNELS"] != "off":
        return
    gone = [item for item in items if item.get_closest_marker("kernels")]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in set(gone)]


@pytest.fixture(scope="session")
def warm_processes(device):
    """Processes that have imported torch."""
    processes = WarmProcesses(device.type)
    yield processes
    processes.close()


@pytest.fixture
def run_in_process(request, backend_package):
    """The pytest plugin's, by a fork, which is faster; tests of the import itself are marked ``fresh``."""
    return (
        process.run_in_process
        if request.node.get_closest_marker("fresh")
        else request.getfixturevalue("warm_processes")
    )


@pytest.fixture
def run_on(run_in_process, name):
    """``run_on(code, "kind=discrete", SHIMS="fault")``: a process with these options and variables of the device.

    It has the package's driver, unless ``DRIVER`` is given.
    """

    def run(code, options=None, *, check=True, **variables):
        env = {f"{name.upper()}_{key}": value for key, value in ({"DRIVER": None} | variables).items()}
        return run_in_process(code, options=options, env=env, check=check)

    return run


@pytest.fixture
def name(device):
    """The device type's name."""
    return device.type


@pytest.fixture(autouse=True)
def same_device_and_stream(device_module):
    """Each test begins and ends on device 0 and its default stream."""
    yield
    if device_module.is_initialized():
        for index in range(device_module.device_count()):
            device_module.set_stream(device_module.default_stream(index))
    device_module.set_device(0)


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """``shim("count_waits")``: the path of a driver, a shim or a library to preload, compiled from its C file."""
    folder = tmp_path_factory.mktemp("shims")

    def path(name, **defines):
        (source,) = Path(__file__).parent.glob(f"*/{name}.c")
        return shims.compiled(source, folder, **defines)

    return path


@pytest.fixture
def printed(run_in_process, name, shim):
    """``printed(code, options)``: what a program prints, which has the device's name ``d`` and its module ``m``.

    With options, or a shim by its name, it runs on the simulated driver; ``driver`` is the shim as a library of ctypes.
    Other words are variables of the device: ``FALLBACK="cpu"``. ``env`` are other variables.
    """

    def run(code, options=None, *, shim_name=None, env=None, **variables):
        prefix, prelude = name.upper(), f"import torch\nd, m = {name!r}, torch.{name}\n"
        if shim_name:
            variables["SHIMS"] = shim(shim_name)
            prelude += f"import ctypes\ndriver = ctypes.CDLL({variables['SHIMS']!r})\n"
        if shim_name or options:
            variables.setdefault("DRIVER", None)
        env = {**(env or {}), **{f"{prefix}_{key}": value for key, value in variables.items()}}
        return run_in_process(prelude + textwrap.dedent(code), options=options, env=env).stdout

    return run


@pytest.fixture(scope="session")
def compiled(backend_package, tmp_path_factory):
    """``compiled(path)``: the shared library of a C++ file, compiled once for all processes of a run."""
    from torch_backplane.paths import library_paths

    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    torch_include = Path(torch.__file__).parent / "include"
    name = torch.utils.backend_registration._privateuse1_backend_name
    (libraries,) = library_paths()

    def compile_(source):
        output = shared / f"lib{source.stem}.so"
        with FileLock(f"{output}.lock"):
            if not output.is_file():
                command = [shutil.which("c++") or "g++", *"-std=c++20 -O0 -fPIC -shared -Wall -Wextra -Werror".split()]
                command += ["-DAT_PER_OPERATOR_HEADERS", "-isystem", torch_include]
                command += ["-isystem", torch_include / "torch" / "csrc" / "api" / "include"]
                command += ["-I", backplane_sdk.source_dir() / "include", source]
                part = output.with_suffix(".part")
                subprocess.run([*command, "-o", part, "-L", libraries, f"-l{name}"], check=True)
                part.rename(output)
        return output

    return compile_


@pytest.fixture
def made():
    """``made(op)`` returns the operator, and destroys it after the test."""
    kept = []

    def keep(op):
        kept.append(op)
        return op

    yield keep
    for op in kept:
        op.destroy()


@pytest.fixture
def ops(backend_package, request):
    """Operators of the test file's ``NAMESPACE``, defined through torch; removed after the test."""
    with Operators(request.module.NAMESPACE) as operators:
        yield operators


@pytest.fixture
def graph(device_module):
    return device_module.CUDAGraph()


@pytest.fixture
def collected():
    """Cycles that earlier tests left are collected.

    A library of torch's removes its operators' names when it is collected, also from a later library.
    """
    gc.collect()


@pytest.fixture
def x(device):
    """Five numbers on the device."""
    return torch.linspace(-2, 2, 5).to(device)


@pytest.fixture
def shifted(made, request):
    """``bp_ops::shift``, which has only a kernel for the device: the test file's function ``shift``."""
    from torch_backplane import ops

    return made(ops.custom_op("bp_ops::shift", request.module.shift, mutates_args=()))


@pytest.fixture
def other_package(backend_package, tmp_path):
    """``other_package(name, **build_info)``: a second backend package, in a folder for PYTHONPATH, which is returned.

    It has an entry point, a ``_build_info`` that is the real one with the given values replaced, and, unless
    ``native=True``, no native code.
    """
    from torch_backplane import _backend

    def make(package, native=False, **changes):
        folder = tmp_path / package
        if native:
            shutil.copytree(Path(_backend.build.__file__).parent, folder)
        else:
            folder.mkdir()
        for module in Path(backend_package.__file__).parent.glob("*.py"):
            shutil.copy(module, folder)
        values = {key: value for key, value in vars(_backend.build).items() if key.isupper()}
        values.update(PACKAGE=package, **changes)
        (folder / "_build_info.py").write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))
        info = tmp_path / f"{package}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(f"[torch.backends]\n{package} = {package}:_autoload\n")
        return tmp_path

    return make
