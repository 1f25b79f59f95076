"""Kernels registered from C++: what is wrong is an ImportError that names the line, before anything runs."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import backplane_sdk

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def bad_kernels(backend_package, device_module, tmp_path_factory):
    from torch_backplane.paths import library_paths

    (folder,) = library_paths()
    output = tmp_path_factory.mktemp("registration") / "libbad_kernels.so"
    name = torch.utils.backend_registration._privateuse1_backend_name
    command = [shutil.which("c++") or "g++", "-std=c++20", "-O0", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    command += ["-isystem", Path(torch.__file__).parent / "include", "-I", backplane_sdk.source_dir() / "include"]
    command += [Path(__file__).parent / "cpp" / "bad_kernels.cpp", "-o", output, "-L", folder, f"-l{name}"]
    subprocess.run(command, check=True)
    return output


def test_a_wrong_kernel_is_an_import_error_with_its_line(bad_kernels, backend_package):
    script = f"""
        import {backend_package.__name__}
        import torch_backplane.ops
        try:
            torch_backplane.ops.load_library({str(bad_kernels)!r})
        except ImportError as error:
            print(error)
        from torch_backplane.ops import lint
        for finding in lint():
            print("lint", finding.rule, finding.op, finding.where.rpartition("/")[2])
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "bad_kernels.cpp:9: there is no operator aten::addd.Tensor in this torch" in result.stdout
    assert "bad_kernels.cpp:11:" in result.stdout
    assert "aten::mul.Tensor" in result.stdout
    findings = [line.split()[1:] for line in result.stdout.splitlines() if line.startswith("lint ")]
    assert findings == [
        ["unknown-op", "aten::addd.Tensor", "bad_kernels.cpp:9"],
        ["signature", "aten::mul.Tensor", "bad_kernels.cpp:11"],
    ]


def test_a_wrong_kernel_of_the_package_itself_is_an_import_error(bad_kernels, device_module):
    """The kernels are there before the package's native module, as the package's own are."""
    from torch_backplane.paths import library_paths

    (folder,) = map(Path, library_paths())
    (native,) = folder.parent.glob("_C.*.so")
    name = torch.utils.backend_registration._privateuse1_backend_name
    script = f"""
        import ctypes
        from importlib.util import module_from_spec, spec_from_file_location
        import torch
        for library in ({str(folder / f"lib{name}.so")!r}, {str(bad_kernels)!r}):
            ctypes.CDLL(library)
        try:
            module_from_spec(spec_from_file_location("_C", {str(native)!r}))
        except ImportError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stderr
    assert f"kernels of {name} could not be registered:" in result.stdout
    assert "bad_kernels.cpp:9: there is no operator aten::addd.Tensor in this torch" in result.stdout
