"""The kernels of backend/kernels/cuda, which call NVIDIA's libraries, over fakes of these on the host: what is
described to cuBLASLt gives the CPU's products. Builds the reference backend over the driver ``cuda``: minutes."""

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


@pytest.mark.parametrize("library", [True, False])
def test_products_are_the_cpus(backend, library, tmp_path):
    fake = compile_fake(tmp_path / "libfake_cuda.so", "fake_cuda")
    compile_fake(tmp_path / "libcublasLt.so.12", "fake_cublaslt")
    import torch

    packages = Path(torch.__file__).parents[1]
    environment = {
        **os.environ,
        # -S: without the hooks of editable installs, which would bring another mydevice.
        "PYTHONPATH": os.pathsep.join(map(str, (backend, ROOT / "python", packages))),
        "MYDEVICE_OPTIONS": f"libcuda={fake}",
        "MYDEVICE_KERNELS": "off",  # nothing here runs the portable ones
        "MYDEVICE_LINT": "off",
        "FAKE_CUDA": str(fake),
        "FAKE_CUBLASLT_LOG": str(tmp_path / "products.log"),
        "LIBRARY": str(int(library)),
    }
    if library:
        environment["LD_LIBRARY_PATH"] = str(tmp_path)
    words = [sys.executable, "-S", Path(__file__).with_name("cuda_products.py")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("all "), done.stdout
    assert (int(done.stdout.split()[1]) > 150) == library
