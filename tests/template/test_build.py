"""Two projects that share no answer, each built, installed and tested in an environment of its own.

One at a time, by one worker: a build takes all processors. The first is installed as a user gets it (the SDK's wheel, a
wheel of the project), the second as its developer works (everything editable).
"""

import os
import re
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from projects import LONG, ROOT, Environment, files, new, run

pytestmark = [pytest.mark.xdist_group("live"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    """A vendor's runtime as it is installed: a header and a shared library, in a folder where no loader looks."""
    folder = tmp_path_factory.mktemp("opt") / "vendor"
    for part in ("include", "lib"):
        (folder / part).mkdir(parents=True)
    (folder / "include" / "vendor.h").write_text(
        textwrap.dedent("""\
        #ifdef __cplusplus
        extern "C"
        #endif
            void vendor_deg2rad(float* out, const float* in, long count);
        """)
    )
    source = folder / "vendor.c"
    source.write_text(
        "#include <vendor.h>\nvoid vendor_deg2rad(float* out, const float* in, long count) {\n"
        "  for (long i = 0; i < count; ++i) out[i] = in[i] * 0.017453292519943295f;\n}\n"
    )
    library = folder / "lib" / "libvendor.so"
    run("cc", "-shared", "-fPIC", "-I", folder / "include", source, "-o", library)
    return folder


@pytest.fixture(scope="module")
def developer(tmp_path_factory, vendor):
    """The simulated device, editable, on an editable SDK. Gives (environment, project, pip's output).

    The commented lines of its CMakeLists.txt are in force, for the vendor's runtime.
    """
    folder = tmp_path_factory.mktemp("developer")
    environment = Environment(folder / "venv")
    environment.pip("install", "--no-build-isolation", "--no-deps", "-e", ROOT)
    project = new(folder / "project", {**LONG, "driver": "sim", "license": "Proprietary", "ci": "github"})
    cmake = project / "CMakeLists.txt"
    head, lines = cmake.read_text().split("# foreach(part", 1)
    cmake.write_text(head + re.sub("(?m)^# ?", "", "# foreach(part" + lines).replace("/opt/vendor", str(vendor)))
    said = environment.pip("install", "-v", "--no-build-isolation", "--no-deps", "-e", project)
    return environment, project, said


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


def test_the_user_trains_on_it(user):
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


def test_the_developers_paths_are_told(developer):
    _, _, said = developer
    assert f"Backplane SDK 0.1.0 (core protocol 1): {ROOT}\n" in said


def test_the_developers_tests_pass(developer):
    environment, project, _ = developer
    environment.run(environment.python, "-m", "pytest", "-q", "tests", cwd=project)
    environment.run("make", "lint", "PYTHON=python", cwd=project)
    said = environment.run(environment.python, "-m", LONG["package_name"])
    assert LONG["device_name"] in said


def test_a_rebuild_without_an_edit_compiles_nothing(developer):
    environment, project, _ = developer
    said = environment.pip("install", "-v", "--no-build-isolation", "--no-deps", "-e", project)
    assert re.findall(r"Building C\w* object \S+", said) == []
    assert "ninja: no work to do" in said


def test_make_dev_brings_an_edit_into_the_import(developer):
    """One kernel is added: that file alone is compiled, and the next import has it."""
    environment, project, _ = developer
    kernel = project / "backend" / "kernels" / "edited.cpp"
    kernel.write_text('extern "C" const char* edited_word() { return "hyperion edited"; }\n')
    said = environment.run("make", "dev", "PYTHON=python", cwd=project)
    assert re.findall(r"Building C\w* object \S+", said) == [
        f"Building CXX object CMakeFiles/{LONG['device_name']}.dir/backend/kernels/edited.cpp.o"
    ]
    code = (
        f"import ctypes, pathlib, {LONG['package_name']}._build_info as b\n"
        f"so = ctypes.CDLL(str(pathlib.Path(b.__file__).parent / 'lib' / 'lib{LONG['device_name']}.so'))\n"
        "so.edited_word.restype = ctypes.c_char_p\nprint(so.edited_word().decode())"
    )
    assert environment.run(environment.python, "-c", code).endswith("hyperion edited\n")
    kernel.unlink()
    environment.run("make", "dev", "PYTHON=python", cwd=project)


def test_kernels_and_driver_call_the_vendors_library(developer, vendor):
    environment, project, _ = developer
    kernel = project / "backend" / "kernels" / "deg2rad.cpp"
    kernel.write_text(
        textwrap.dedent("""\
        #include <backplane/kernel.h>
        #include <backplane/structured.h>
        #include <vendor.h>

        namespace {

        struct Deg2rad : backplane::HostKernel {
          using Takes = backplane::Dtypes<float>;
          static at::Tensor run(const at::Tensor& self) {
            const at::Tensor in = self.contiguous();
            at::Tensor out = backplane::empty(in.sizes(), in.scalar_type(), in.device().index());
            const auto from = backplane::const_device_ptr<float>(in);
            const auto to = backplane::device_ptr<float>(out);
            backplane::launch(in.device().index(), [=, count = in.numel()](const backplane::DeviceMemory& memory) {
              vendor_deg2rad(memory(to), memory(from), count);
            });
            return out;
          }
        };

        }  // namespace

        BACKPLANE_KERNELS(aten, m) { backplane::function<Deg2rad>(m, "deg2rad"); }
        """)
    )
    environment.run("make", "dev", "PYTHON=python", cwd=project)
    code = f"""
        import torch
        from torch_backplane.testing import kernel_calls
        x = torch.linspace(-180, 180, 12).view(3, 4)
        torch.testing.assert_close(torch.deg2rad(x.to("{LONG["device_name"]}").t()).cpu(), torch.deg2rad(x.t()))
        print(kernel_calls("deg2rad"))
    """
    assert environment.run(environment.python, "-c", textwrap.dedent(code), LD_LIBRARY_PATH="") == "1\n"
    libraries = project / "build" / LONG["package_name"] / "lib"
    for name in (LONG["device_name"], f"{LONG['device_name']}_driver"):
        said = run("readelf", "-d", libraries / f"lib{name}.so")
        assert re.search(rf"R(UN)?PATH.*\[{vendor}/lib\]", said), said
    kernel.unlink()
    environment.run("make", "dev", "PYTHON=python", cwd=project)


def test_a_driver_by_itself_calls_the_vendors_library(vendor, tmp_path):
    text = (ROOT / "examples" / "minimal_driver" / "minimal_driver.c").read_text()
    properties = '.driver_version = "0.1.0"};\n'
    assert text.count(properties) == 1
    (tmp_path / "driver.c").write_text(
        "#include <vendor.h>\n"
        "static float half_turn(void) { float out, in = 180; return vendor_deg2rad(&out, &in, 1), out; }\n"
        + text.replace(properties, properties + "  p.name[0] = half_turn() > 3 ? 'P' : '?';\n")
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES C CXX)\nfind_package(backplane CONFIG REQUIRED)\n"
        f"backplane_add_driver(npu driver.c)\ntarget_include_directories(npu_driver SYSTEM PRIVATE {vendor}/include)\n"
        f"target_link_libraries(npu_driver PRIVATE {vendor}/lib/libvendor.so)\n"
        f"set_target_properties(npu_driver PROPERTIES INSTALL_RPATH {vendor}/lib)\n"
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja", f"-Dbackplane_ROOT={ROOT}")
    run("cmake", "--build", tmp_path / "b")
    words = [sys.executable, "-m", "torch_backplane.cli", "check-driver", tmp_path / "b" / "libnpu_driver.so"]
    said = run(*words, "--only", "memory.patterns", env={"LD_LIBRARY_PATH": ""})
    assert "devices  1: Pinimal device (" in said
    assert "1 passed, 0 failed" in said


def test_the_commented_extension_works_when_it_is_uncommented(developer):
    environment, project, _ = developer
    extensions = project / "backend" / "extensions.cpp"
    text = extensions.read_text()
    head, code = text.split("//\n// #include", 1)
    extensions.write_text(head + re.sub("(?m)^// ?", "", "// #include" + code))
    environment.run("make", "dev", "PYTHON=python", cwd=project)
    code = f"""
        import io, torch
        ops = torch.ops.{LONG["package_name"]}
        x = torch.ones(2, 3, device="{LONG["device_name"]}")
        ops.set_format(x, 7)
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        print([ops.get_format(y) for y in (x, x.detach(), x.t(), torch.load(file), torch.ones_like(x))])
    """
    assert environment.run(environment.python, "-c", textwrap.dedent(code)) == "[7, 7, 7, 7, 0]\n"
    extensions.write_text(text)
    environment.run("make", "dev", "PYTHON=python", cwd=project)


def test_the_driver_lies_in_the_projects_build_tree(developer):
    _, project, _ = developer
    assert (project / "build" / LONG["package_name"] / "lib" / f"lib{LONG['device_name']}_driver.so").is_file()


def test_building_writes_nothing_into_the_project_but_build(developer):
    _, project, _ = developer
    answers = {**LONG, "driver": "sim", "license": "Proprietary", "ci": "github"}
    fresh = new(project.parents[1] / "fresh", answers)
    kept = {name for name in files(project) if not name.startswith(("build/", ".pytest_cache/", ".ruff_cache/"))}
    assert kept == set(files(fresh))


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
        ("npu DRIVER simm", "neither a file nor a driver of the SDK (sim)"),
        ("npu DRIVER sim KERNEL a.cpp", "neither a file nor a driver of the SDK"),
        ("npu sim", "unknown argument sim"),
    ],
)
def test_backplane_add_backend_refuses_what_it_cannot_build(tmp_path, arguments, text):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES C CXX)\n"
        f"find_package(backplane CONFIG REQUIRED)\nbackplane_add_backend({arguments})\n"
    )
    words = ["-G", "Ninja", f"-Dbackplane_ROOT={ROOT}", f"-DPython_EXECUTABLE={sys.executable}"]
    said = run("cmake", "-S", tmp_path, "-B", tmp_path / "b", *words, check=False)
    assert text in re.sub(r"\s+", " ", said)


def test_no_environment_variable_of_ours_leaks_in():
    """The environments above start from ours."""
    assert not [name for name in os.environ if name.startswith(("Q_", "HYPERION_"))]
