"""Which Triton compiles kernels for the device, and what `torch-backplane doctor` and `explain` report of it."""

import json
import os
from pathlib import Path

import programs
import pytest
import triton
from click.testing import CliRunner

from backplane_tools.cli import doctor, main
from torch_backplane import _backend, compiler
from torch_backplane.triton import releases

DEVICE = _backend.device
OTHER = {
    "compiler": """
from triton.backends.compiler import BaseBackend
class Compiler(BaseBackend):
    supports_target = staticmethod(lambda target: False)
    hash = parse_options = add_stages = load_dialects = get_module_map = lambda self, *rest: None
""",
    "driver": """
from triton.backends.driver import DriverBase
class Driver(DriverBase):
    __init__ = lambda self: None
    is_active = staticmethod(lambda: True)
    get_current_target = get_active_torch_device = get_benchmarker = map_python_to_cpp_type = lambda self, *rest: None
""",
}
DRIVER = """
print(type(triton.runtime.driver.active).__module__)
x, out = tensors()
double_rows[(1,)](x, out, 64, BLOCK=64)
print(out.sum().item())
"""
BY_VARIABLE = releases.has_default_backend(triton.__version__)


@pytest.fixture
def second(tmp_path):
    """The folder of another backend of Triton, which is active."""
    for name, text in OTHER.items():
        file = tmp_path / "site" / "other_triton" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    about = tmp_path / "site" / "other-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[triton.backends]\nother = other_triton\n")
    return str(about.parent)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("TRITON_DEFAULT_BACKEND", "TRITON_BACKENDS_IN_TREE", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)


def path_with(*folders, hide=""):
    """PYTHONPATH with folders in front, without those that have a package."""
    kept = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*folders, *(one for one in kept if not hide or not (Path(one) / hide).exists())])


def test_T13_the_variable_decides_between_active_backends_and_the_error_says_so(tmp_path, second):
    text = f"""
try:
    triton.runtime.driver.active
except RuntimeError as error:
    print(error)
    if {not BY_VARIABLE}:
        triton.runtime.driver.set_active(triton.backends.backends["{DEVICE}"].driver())
        print(type(triton.runtime.driver.active).__module__)
"""
    lines = programs.run(tmp_path, text, path=[second]).splitlines()
    assert "2 active drivers" in lines[0]
    if BY_VARIABLE:
        assert f"of {DEVICE}: TRITON_DEFAULT_BACKEND={DEVICE} in the environment selects it" in lines[0]
        lines = programs.run(tmp_path, DRIVER, path=[second], TRITON_DEFAULT_BACKEND=DEVICE).splitlines()
        assert lines == ["torch_backplane.triton.driver", "4032.0"]
    else:
        assert f'triton.runtime.driver.set_active(triton.backends.backends["{DEVICE}"].driver()) selects it' in lines[0]
        assert lines[1:] == ["torch_backplane.triton.driver"]


@pytest.mark.parametrize("version", ["3.4.0", "3.10.1", "4.0.0+git"])
def test_T13_a_release_that_is_not_supported_is_refused_with_what_to_install(tmp_path, version):
    text = f"""
triton.__version__ = {version!r}
x, out = tensors()
attempt(lambda: double_rows[(1,)](x, out, 64, BLOCK=64))
"""
    (line,) = programs.run(tmp_path, text).splitlines()
    assert line == (
        f"RuntimeError Triton {version} is not supported: torch-backplane reads what Triton 3.5 to 3.9 write. "
        f"pip install '{releases.requirement()}'"
    )


def test_T13_a_chip_that_no_driver_reports_on_has_no_invented_properties():
    properties = triton.runtime.driver.active.utils.get_device_properties(0)
    assert properties["max_shared_mem"] == compiler.target().local_bytes
    assert properties["multiprocessor_count"] > 0
    with pytest.raises(KeyError, match=f"mem_clock_rate: no driver of {DEVICE} reports it"):
        properties["mem_clock_rate"]  # as get_dram_gbps does


# ---- doctor ----


def asked(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return doctor.check_triton(DEVICE)


def test_T13_doctor_reports_the_release_the_target_and_the_cache(monkeypatch, tmp_path):
    finding = asked(monkeypatch, TRITON_CACHE_DIR=str(tmp_path))
    name = compiler.target().name
    assert (finding.state, finding.cure) == ("ok", "")
    assert finding.found == f"{triton.__version__}: kernels are compiled for {name}, texts in {tmp_path}"


def test_T13_doctor_reports_another_active_backend(monkeypatch, second):
    finding = asked(monkeypatch, PYTHONPATH=path_with(second))
    assert finding.state == "warn"
    assert f"several backends are active, {DEVICE}, other" in finding.found
    if BY_VARIABLE:
        assert finding.cure == f"TRITON_DEFAULT_BACKEND={DEVICE}"
        assert asked(monkeypatch, TRITON_DEFAULT_BACKEND=DEVICE).state == "ok"
        finding = asked(monkeypatch, TRITON_DEFAULT_BACKEND="other")
        assert finding.found.endswith("kernels are compiled for other, as TRITON_DEFAULT_BACKEND says")


@pytest.mark.parametrize(
    ("package", "found"),
    [
        (None, "not installed: kernels of Triton do not run"),
        ("raise OSError('libtriton.so: no such file')", "import triton: OSError: libtriton.so: no such file"),
        ("import os; os.abort()", "the import ended with status -6: it ended and printed nothing"),
        ("__version__ = '3.11.0'", "import triton: ImportError: cannot import name 'knobs'"),
    ],
)
def test_T13_doctor_reports_a_missing_and_a_broken_triton(monkeypatch, tmp_path, package, found):
    folder = tmp_path / "site" / "triton"
    folder.mkdir(parents=True)
    if package is None:
        folder.rmdir()
    else:
        (folder / "__init__.py").write_text(package)
    finding = asked(monkeypatch, PYTHONPATH=path_with(str(folder.parent), hide="triton"))
    assert finding.state == "warn"
    assert finding.found.startswith(found)
    assert finding.cure.startswith("pip install ")
    assert releases.requirement() in finding.cure or "-6" in found


def test_T13_doctor_reports_settings_that_take_kernels_elsewhere(monkeypatch):
    if BY_VARIABLE:
        finding = asked(monkeypatch, TRITON_BACKENDS_IN_TREE="1")
        assert (finding.state, finding.cure) == ("warn", "unset TRITON_BACKENDS_IN_TREE")
        monkeypatch.delenv("TRITON_BACKENDS_IN_TREE")
    finding = asked(monkeypatch, TRITON_INTERPRET="1")
    assert finding.state == "ok"
    assert "kernels are interpreted" in finding.found


# ---- explain ----


def test_T13_explain_lists_the_kernels_of_a_program_and_their_texts(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        programs.KERNELS
        + """
x, out = tensors()
for block in (64, 32):
    for _ in range(2):
        double_rows[(64 // block,)](x, out, 64, BLOCK=block)
"""
    )
    done = CliRunner().invoke(main, ["explain", "--json", "--compiled", str(script)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output[done.output.index("{") :])
    assert [(one["name"], one["place"].rpartition("/")[2]) for one in found["triton"]] == [
        ("double_rows", "script.py:9")
    ] * 2
    assert [one["settings"] for one in found["triton"]] == [
        f"BLOCK={block}, num_warps=4, num_stages=2" for block in (64, 32)
    ]
    for one in found["triton"]:
        ttir, text = map(Path, one["texts"])
        assert "tt.func public @double_rows" in ttir.read_text()
        facts = json.loads(text.read_text())
        assert ("BP_KERNEL(generated" in facts["text"]) if "text" in facts else (facts["ttir"] == ttir.read_text())
        assert Path(one["code"]).is_relative_to(compiler.cache_dir())
        assert Path(one["code"]).stat().st_size > 0
    (time,) = found["triton_times"]
    assert (time["name"], time["calls"]) == ("double_rows", 4)
    assert time["microseconds"] > 0
    text = CliRunner().invoke(main, ["explain", "--compiled", str(script)]).output
    assert "kernels of Triton: 2" in text
    assert "double_rows" in text
    assert "BLOCK=32, num_warps=4, num_stages=2" in text


def test_T13_explain_of_a_program_without_kernels_fails(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\n")
    done = CliRunner().invoke(main, ["explain", "--compiled", str(script)])
    assert done.exit_code == 1
    assert "compiled no graph" in done.output
    assert "ran no kernel of Triton" in done.output
