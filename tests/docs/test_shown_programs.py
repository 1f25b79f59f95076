"""Pages whose programs and commands run as they are shown, and print what is shown."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from pages import ROOT, blocks, code, text_of
from projects import run

import backplane_sdk
from torch_backplane.paths import library_paths

BASH = ("bash", "-e", "-c")


def run_program(folder, text, **env):
    """The output of a Python program."""
    program = folder / "program.py"
    program.write_text(text)
    return run(sys.executable, "-W", "ignore", program, cwd=folder, env=env)


@pytest.mark.parametrize(
    ("page", "kind", "printed"),
    [
        ("graphs", "unified", "True"),
        ("dlpack", "unified", "24.0"),  # of the array's write the device sees the 9 in the place of 5
        pytest.param("graphs", "discrete", "True", marks=pytest.mark.long),
        pytest.param("dlpack", "discrete", "20.0", marks=pytest.mark.long),  # the array is a copy
    ],
)
def test_a_program_on_either_kind_of_memory(run_in_process, backend_package, page, kind, printed):
    name = torch.utils.backend_registration._privateuse1_backend_name
    program = "".join(code(f"docs/{page}.md")).replace("mydevice", name)
    kernels = "wait" if page == "graphs" else "off"
    variables = {f"{name.upper()}_DRIVER": None, f"{name.upper()}_KERNELS": kernels}
    assert run_in_process(program, options=f"kind={kind}", env=variables).stdout.strip() == printed


@pytest.mark.usefixtures("backend_package")
def test_libraries(tmp_path):
    page = "docs/libraries.md"
    printed = [line.partition("  # ")[2] for line in text_of(page).splitlines() if line.strip().startswith("print(")]
    assert run_program(tmp_path, "\n".join(code(page))).splitlines() == printed


@pytest.mark.usefixtures("backend_package")
def test_python_kernels(tmp_path):
    first, second = code("docs/python-kernels.md")
    said = run_program(tmp_path, first.replace('kernel("aten::gelu")', 'kernel("aten::gelu", override=True)') + second)
    assert said.startswith(f"{tmp_path / 'program.py'}:6 tensor([0.8413")


@pytest.mark.usefixtures("backend_package")
def test_device_module(tmp_path):
    (program,) = code("docs/device-module.md")
    assert "small pool" in run_program(tmp_path, "import torch\n" + program)


@pytest.mark.usefixtures("backend_package")
@pytest.mark.requires("profile")
def test_profiler(tmp_path):
    """The table, the trace, and the page of the command."""
    ((program,), (command,)) = code("docs/profiler.md"), code("docs/profiler.md", "sh")
    assert "Self MYDEVICE" in run_program(tmp_path, program, MYDEVICE_KERNELS="wait")
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"step", "Memset", "launch kernel"} <= {row["name"] for row in rows}
    assert any(row["name"].startswith("aten::") for row in rows if row.get("cat") == "kernel")
    assert [row["name"] for row in rows if row.get("cat") == "gpu_user_annotation"] == ["step"] * 3
    (tmp_path / "train.py").write_text("import torch\ntorch.empty(64, device='mydevice').fill_(1)\n")
    assert "costliest kernels" in run(*BASH, command, cwd=tmp_path)
    assert "Memset" in (tmp_path / "trace.html").read_text()
    assert "Memset" in (tmp_path / "trace.json").read_text()


@pytest.mark.long
@pytest.mark.usefixtures("backend_package")
def test_testing_ops(tmp_path):
    """The rows of its table of failures are tested in device/test_check_op.py."""
    ((report, *programs), (command,)) = code("docs/testing-ops.md"), code("docs/testing-ops.md", "sh")
    report += "assert report.ok and not report.untested, report\n"
    (tmp_path / "test_page.py").write_text("\n\n".join([*programs, report]))
    assert "15 passed" in run(*BASH, command, cwd=tmp_path)
    assert (tmp_path / "failures_dict.json").exists()


@pytest.mark.long
@pytest.mark.usefixtures("backend_package")
def test_coverage(tmp_path):
    """A table of the form that the page shows: which kernels there are, and so the numbers, differ."""
    content = {block.language: block.content for block in blocks("docs/coverage.md")}
    (tmp_path / "models.py").write_text(content["python"])
    said = run(*BASH, content["sh"].splitlines()[1], cwd=tmp_path)
    heading, *rows = content["text"].splitlines()
    assert heading.split() in [line.split() for line in said.splitlines()]
    shown = {row.split()[0] for row in rows if row.startswith("aten::")}
    assert len(shown) > 5
    assert shown <= set(re.findall(r"^(aten::\S+) ", said, re.MULTILINE))
    assert re.search(r"^\d+ operators: 0 refused, \d+ fallback", said, re.MULTILINE)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.requires("collective")
def test_distributed(backend_package, tmp_path):
    done, printed = [], ""
    for block in blocks("docs/distributed.md"):
        done.append(block.language)
        if block.language == "python":
            name, _, program = block.content.partition("\n")
            (tmp_path / name.removeprefix("# ")).write_text(program)
        elif block.language == "sh":
            env = {"OMP_NUM_THREADS": "1", "MYDEVICE_OPTIONS": "devices=4"}
            printed = run(*BASH, block.content, cwd=tmp_path, env=env)
        else:
            for line in block.content.splitlines():
                assert line in printed, f"line {block.line}: not printed: {line}\n{printed}"
    assert [done.count(language) for language in ("python", "sh", "text")] == [4, 5, 4]


@pytest.mark.long
def test_drivers(tmp_path, monkeypatch):
    """The OpenCL driver under the installed backend."""
    for name in [name for name in os.environ if name.startswith("MYDEVICE_")]:
        monkeypatch.delenv(name)
    (command,) = code("docs/drivers.md", "sh")
    said = run(*BASH, command, cwd=tmp_path)
    assert str(tmp_path / "libopencl_driver.so") in "".join(said.split())
    assert "compiler" in said


def test_handles(tmp_path):
    """The blocks are the members of one driver, which compiles as C++17."""
    shown = code("docs/handles.md", "cpp")
    assert len(shown) > 4
    source = tmp_path / "handles.cpp"
    declared = (Path(__file__).parent / "cpp" / "handles.cpp").read_text()
    source.write_text(declared + "\n".join(shown) + "};\nBP_DEFINE_DRIVER(Page)\n")
    strict = "-std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only".split()
    run(os.environ.get("CXX", "c++"), *strict, f"-I{backplane_sdk.include_dir()}", source)


@pytest.mark.long
@pytest.mark.usefixtures("backend_package")
def test_custom_ops_in_cpp(tmp_path):
    page = "docs/custom-ops-cpp.md"
    kernels, library = code(page, "cpp")
    project, fakes, use = code(page)
    template = (ROOT / "{{cookiecutter.package_name}}/backend/operators/swiglu.cpp").read_text()
    assert kernels in template.replace("{{ cookiecutter.package_name }}", "mydevice")

    (tmp_path / "vendor.cpp").write_text(library)
    (tmp_path / "vendor_ops.py").write_text(fakes)
    (libraries,) = library_paths()
    include = Path(torch.__file__).parent / "include"
    words = "-std=c++20 -O0 -fPIC -shared -DAT_PER_OPERATOR_HEADERS vendor.cpp -o libvendor.so -lmydevice".split()
    words += ["-isystem", include, "-isystem", include / "torch/csrc/api/include"]
    words += ["-I", backplane_sdk.source_dir() / "include", "-L", libraries]
    run(os.environ.get("CXX", "c++"), *words, cwd=tmp_path)
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
    run_program(tmp_path, project + f"path = {str(tmp_path / 'libvendor.so')!r}\n" + use + check)


@pytest.mark.long
def test_conformance(tmp_path):
    device_generic, suite = code("docs/conformance.md")
    (tmp_path / "test_sort.py").write_text(device_generic)
    (tmp_path / "board.py").write_text(suite)
    words = "-m pytest -q -p no:cacheprovider test_sort.py".split()
    assert "2 passed" in run(sys.executable, *words, cwd=tmp_path)
    words = "-m backplane_tools conformance --suite board=board:BoardSuite --jobs 1".split()
    assert "1 case holds" in run(sys.executable, *words, cwd=tmp_path)
