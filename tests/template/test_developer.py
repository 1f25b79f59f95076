"""A project as its developer works on it: everything editable, linked to the vendor's runtime."""

import re
import sys
import textwrap

import pytest
from projects import LONG, ROOT, Environment, files, new, run

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("live"), pytest.mark.timeout(900)]


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


def test_the_developers_paths_are_printed(developer):
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
    kernel.parent.mkdir(exist_ok=True)
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
    kernel.parent.mkdir(exist_ok=True)
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
    words = [sys.executable, "-m", "backplane_tools", "check-driver", tmp_path / "b" / "libnpu_driver.so"]
    said = run(*words, "--only", "memory.patterns", env={"LD_LIBRARY_PATH": ""})
    assert "devices  1: Pinimal device (" in said
    assert "1 passed, 0 failed" in said


def test_the_driver_lies_in_the_projects_build_tree(developer):
    _, project, _ = developer
    assert (project / "build" / LONG["package_name"] / "lib" / f"lib{LONG['device_name']}_driver.so").is_file()


def test_building_writes_nothing_into_the_project_but_build(developer):
    _, project, _ = developer
    answers = {**LONG, "driver": "sim", "license": "Proprietary", "ci": "github"}
    fresh = new(project.parents[1] / "fresh", answers)
    kept = {name for name in files(project) if not name.startswith(("build/", ".pytest_cache/", ".ruff_cache/"))}
    assert kept == set(files(fresh))
