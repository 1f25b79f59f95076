"""The kernels of backend/kernels/cuda, which call NVIDIA's libraries, over fakes of these on the host: what is
described to cuBLASLt and cuDNN gives the CPU's products and convolutions. Builds the reference backend over the driver
``cuda``: minutes."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests" / "driver"


@pytest.fixture(scope="module")
def backend():
    """The build of ``make gpu-check``, brought up to date."""
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "tests" / "gpu_check.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module
    spec.loader.exec_module(module)
    module.OUT.mkdir(parents=True, exist_ok=True)
    module.LIMIT_S = 3600
    outcome = module.build()
    assert outcome.status == "passed", outcome.summary
    return module.OUT


def compile_fake(out, folder):
    unit = out.with_suffix(".cpp")
    unit.write_text("".join(f'#include "{path}"\n' for path in sorted((FAKES / folder).glob("*.cpp"))))
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20", "-O1", "-shared", "-fPIC"]
    subprocess.run([*compiler, f"-I{ROOT / 'include'}", unit, "-o", out, "-lpthread", "-ldl"], check=True)
    return out


def run_on_the_fake(backend, folder, program, *arguments, options="", **variables):
    """What a program on the device said, with the fake libcuda.so.1 below."""
    import torch

    fake = compile_fake(folder / "libfake_cuda.so", "fake_cuda")
    packages = Path(torch.__file__).parents[1]
    environment = {
        **os.environ,
        # -S: without the hooks of editable installs, which would bring another mydevice.
        "PYTHONPATH": os.pathsep.join(map(str, (backend, ROOT / "python", packages))),
        "MYDEVICE_OPTIONS": f"libcuda={fake}{options}",
        "MYDEVICE_LINT": "off",
        "FAKE_CUDA": str(fake),
        **variables,
    }
    words = [sys.executable, "-S", program, *arguments]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize(
    ("program", "folder", "name", "place"),
    [
        ("cuda_products.py", "fake_cublaslt", "libcublasLt.so.12", "LD_LIBRARY_PATH"),
        ("cuda_convolutions.py", "fake_cudnn", "lib64/libcudnn.so.9", "CUDA_HOME"),
    ],
    ids=["products", "convolutions"],
)
def test_what_a_library_computes_is_the_cpus(backend, program, folder, name, place, library, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    compile_fake(tmp_path / name, folder)
    variables = {
        "MYDEVICE_KERNELS": "off",  # nothing here runs the portable ones
        "FAKE_CUBLASLT_LOG": str(tmp_path / "products.log"),
        "FAKE_CUDNN_LOG": str(tmp_path / "convolutions.log"),
        "LIBRARY": str(int(library)),
    }
    if library:
        variables[place] = str(tmp_path)
    said = run_on_the_fake(backend, tmp_path, Path(__file__).with_name(program), **variables)
    assert said.startswith("all ")
    assert (int(said.split()[1]) > 150) == library


def test_every_kernel_is_launched_with_what_its_cubin_takes(backend, tmp_path):
    """From the core to CUDA: compiled by NVRTC, loaded, found by its signature, and launched with as many bytes as the
    cubin's own description says. The fake, which runs no kernel, refuses anything else."""
    if importlib.util.find_spec("nvidia") is None:
        pytest.skip("there is no NVRTC: pip install nvidia-cuda-nvrtc-cu12")
    calls = tmp_path / "calls.txt"
    run_on_the_fake(
        backend,
        tmp_path,
        ROOT / "tests" / "portable" / "every_source.py",
        "float32",
        MYDEVICE_KERNELS="strict",
        MYDEVICE_CACHE_DIR=str(tmp_path / "cache"),
        MYDEVICE_SHIMS="trace",
        options=f",trace.file={calls},trace.filter=bp.module.*",
    )
    lines = calls.read_text().splitlines()
    counts = {entry: sum(f"bp.module.{entry} " in line for line in lines) for entry in ("load", "function", "launch")}
    assert counts["load"] > 50, counts
    assert counts["function"] > 50, counts
    assert counts["launch"] > 100, counts
    assert [line for line in lines if "INVALID_ARGUMENT" in line] == []
