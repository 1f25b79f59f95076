"""docs/custom-ops-cpp.md: what it shows compiles and runs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, blocks

import backplane_sdk

PAGE = "docs/custom-ops-cpp.md"


@pytest.mark.long
@pytest.mark.usefixtures("backend_package")
def test_the_pages_programs(tmp_path):
    import torch

    from torch_backplane.paths import library_paths

    kernels, library = (block.content for block in blocks(PAGE) if block.language == "cpp")
    project, fakes, use = (block.content for block in blocks(PAGE) if block.language == "python")
    template = (ROOT / "{{cookiecutter.package_name}}/backend/operators/swiglu.cpp").read_text()
    assert kernels in template.replace("{{ cookiecutter.package_name }}", "mydevice")

    (tmp_path / "vendor.cpp").write_text(library)
    (tmp_path / "vendor_ops.py").write_text(fakes)
    (libraries,) = library_paths()
    include = Path(torch.__file__).parent / "include"
    command = [shutil.which("c++") or "g++", *"-std=c++20 -O0 -fPIC -shared -DAT_PER_OPERATOR_HEADERS".split()]
    command += ["-isystem", include, "-isystem", include / "torch/csrc/api/include"]
    command += ["-I", backplane_sdk.source_dir() / "include", tmp_path / "vendor.cpp"]
    subprocess.run([*command, "-o", tmp_path / "libvendor.so", "-L", libraries, "-lmydevice"], check=True)

    check = """
got, grad = torch.ops.vendor.swish(x, 2.0).detach().cpu(), x.grad.cpu()
y = x.detach().cpu().requires_grad_()
expected = y * (2 * y).sigmoid()
expected.sum().backward()
torch.testing.assert_close(got, expected.detach())
torch.testing.assert_close(grad, y.grad)
whole = torch.compile(lambda x: torch.ops.vendor.swish(x, 2.0), backend="aot_eager", fullgraph=True)
torch.testing.assert_close(whole(x).detach().cpu(), got)
with torch.autocast("mydevice", torch.bfloat16):
    assert torch.ops.vendor.swish(x.bfloat16()).dtype == torch.float32
"""
    program = tmp_path / "program.py"
    program.write_text(project + f"path = {str(tmp_path / 'libvendor.so')!r}\n" + use + check)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
