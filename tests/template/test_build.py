"""A project as a user gets it, built, installed and tested in a separate environment: from wheels, the SDK's too.

One build at a time, by one worker: it takes all processors. test_developer.py builds another project, which shares no
answer with this one.
"""

import os
import re
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from projects import ROOT, Environment, run

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("live"), pytest.mark.timeout(900)]


def test_pip_takes_nothing_from_the_machine(tmp_path):
    settings = Environment(tmp_path / "venv").pip("config", "list").splitlines()
    assert {":env:.no-index='1'", ":env:.find-links=''"} <= set(settings)
    assert [line for line in settings if not line.startswith(":env:.")] == []


def test_a_wheel_of_the_sdk_is_what_the_user_builds_from(user):
    environment, _, _, said = user
    assert f"Backplane SDK 0.1.0 (core protocol 1): {environment.site}/backplane_sdk/source" in said
    assert re.search(r"-- torch 2\.\d+\.\d+\S*: ", said)


def test_the_projects_wheel_is_complete(user):
    _, _, wheel, _ = user
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith("/METADATA")]
        text = archive.read(metadata).decode()
    assert {
        "qpu/__init__.py",
        "qpu/_build_info.py",
        "qpu/py.typed",
        "qpu/lib/libq.so",
        "qpu/lib/libq_driver.so",
        "qpu/lib/libbackplane_emulate.so",
        "qpu/bin/backplane-check-driver",
        "qpu/include/backplane/driver.h",
        "qpu/include/backplane/kernel.h",
        "qpu/include/qpu/device.h",
        "qpu/lib/cmake/q/qConfig.cmake",
    } <= names
    assert any(re.fullmatch(r"qpu/_C\.cpython-\S+\.so", name) for name in names)
    import torch

    minor = ".".join(torch.__version__.split(".")[:2])
    assert f"Requires-Dist: torch=={minor}.*" in text.replace(" ==", "==")
    assert "Requires-Dist: torch-backplane~=0.1" in text.replace(" ~= ", "~=").replace(" ~=", "~=")


def test_no_path_of_the_build_is_in_the_wheel(user):
    _, project, wheel, _ = user
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            assert str(project).encode() not in content, name
            assert re.findall(rb"[ -~]*/site-packages/[ -~]*", content)[:3] == [], name


def test_V03_the_user_trains_on_it(user):
    environment, project, _, _ = user
    environment.run(environment.python, "-m", "pytest", "-q", "tests", cwd=project, Q_FALLBACK="cpu")
    assert "Minimal device" in environment.run(environment.python, "-m", "qpu")
    assert environment.run(environment.python, "-c", "import torch; print(torch.q.device_count() > 0)") == "True\n"


def test_without_numpy_an_import_is_silent(user, sdk_wheel, tmp_path):
    """torch says once in a process that there is none, at the line that first could have met an array."""
    _, _, wheel, _ = user
    environment = Environment(tmp_path / "venv", without=("numpy",))
    environment.pip("install", "--no-deps", sdk_wheel, wheel)
    code = """
        import qpu, torch, warnings
        x = torch.tensor([1.0, 2.0], device="q")
        print((x + x).tolist(), [entry for entry in warnings.filters if "NumPy" in str(entry[1])])
        try:
            x.cpu().numpy()
        except RuntimeError as error:
            print(error)
    """
    said = environment.run(environment.python, "-W", "error", "-c", textwrap.dedent(code))
    assert said == "[2.0, 4.0] []\nNumpy is not available\n"
    # Where torch is imported first, it may speak of itself; the backend adds nothing.
    words = [environment.python, "-c", "import torch; print(torch.ones(2).tolist())"]
    assert environment.run(*words) == environment.run(*words, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_cplusplus_programs_find_the_device(user, tmp_path):
    """Without Python: find_package, link, compute."""
    environment, _, _, _ = user
    import torch

    libraries = Path(torch.__file__).parent / "lib"
    (tmp_path / "CMakeLists.txt").write_text(
        textwrap.dedent(f"""\
        cmake_minimum_required(VERSION 3.25)
        project(program LANGUAGES CXX)
        find_package(q CONFIG REQUIRED)
        add_executable(program program.cpp)
        target_include_directories(program SYSTEM PRIVATE {libraries.parent}/include)
        target_link_options(program PRIVATE -Wl,--no-as-needed)
        target_link_libraries(program PRIVATE q::q {libraries}/libtorch_cpu.so {libraries}/libc10.so)
        set_target_properties(program PROPERTIES BUILD_RPATH {libraries})
        """)
    )
    (tmp_path / "program.cpp").write_text(
        textwrap.dedent("""\
        #include <ATen/core/Tensor.h>
        #include <ATen/ops/ones.h>
        #include <backplane/driver.h>
        #include <qpu/device.h>

        #include <cstdio>

        int main() {
          at::Tensor x = at::ones({2, 3}, at::TensorOptions().device(qpu::device()));
          std::printf("%s %g\\n", x.device().str().c_str(), x.cpu().sum().item<double>());
        }
        """)
    )
    package = Path(environment.run(environment.python, "-c", "import qpu; print(qpu.__path__[0])").strip())
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={package}"]
    environment.run(*configure, cwd=tmp_path)
    environment.run("cmake", "--build", tmp_path / "b", cwd=tmp_path)
    assert environment.run(tmp_path / "b" / "program").split()[-1] == "6"


def test_a_build_without_torch_says_what_to_do(tmp_path):
    """The first thing that goes wrong under build isolation."""
    said = run(
        "cmake",
        "-S",
        ROOT,
        "-B",
        tmp_path,
        "-G",
        "Ninja",
        f"-DPython_EXECUTABLE={bare_python(tmp_path)}",
        check=False,
    )
    assert "torch is not installed for" in said
    assert "--no-build-isolation" in said.replace("\n  ", " ")


def bare_python(folder: Path) -> Path:
    """A Python without torch."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "bare")
    return folder / "bare" / "bin" / "python"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("npu7 DRIVER sim", "lower-case letters"),
        ("npu", "DRIVER is missing"),
        ("npu DRIVER sim KERNELS add.cpp", "add.bpc takes no place: KERNELS does not name the kernel library"),
        ("npu DRIVER sim KERNELS portable add.cpp", "add.bpc takes no place: the kernel library has cat.bpc, "),
        ("npu DRIVER simm", "neither a file nor a driver of the SDK (cuda, opencl, sim, vulkan)"),
        ("npu DRIVER sim KERNEL a.cpp", "neither a file nor a driver of the SDK"),
        ("npu DRIVER sim KERNELS portable cuda", "KERNELS cuda is neither a file nor the word portable"),
        ("npu DRIVER sim EXTENSIONS hooks.cpp", "EXTENSIONS hooks.cpp is not a file"),
        ("npu sim", "unknown argument sim"),
    ],
)
def test_backplane_add_backend_refuses_what_it_cannot_build(tmp_path, arguments, text):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES C CXX)\n"
        f"find_package(backplane CONFIG REQUIRED)\nbackplane_add_backend({arguments})\n"
    )
    if "add.cpp" in arguments:  # beside a source of the dialect
        (tmp_path / "backend" / "kernels").mkdir(parents=True)
        (tmp_path / "backend" / "kernels" / "add.bpc").touch()
        (tmp_path / "add.cpp").touch()
    words = ["-G", "Ninja", f"-Dbackplane_ROOT={ROOT}", f"-DPython_EXECUTABLE={sys.executable}"]
    said = run("cmake", "-S", tmp_path, "-B", tmp_path / "b", *words, check=False)
    assert text in re.sub(r"\s+", " ", said)


def test_no_environment_variable_of_ours_leaks_in():
    """The environments above start from ours."""
    assert not [name for name in os.environ if name.startswith(("Q_", "HYPERION_"))]
