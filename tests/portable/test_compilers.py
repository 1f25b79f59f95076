"""The kernel library with other compilers than the simulated device's own.

gcc and clang for an item that is a core; for groups of items PoCL with the OpenCL driver's prelude, the CUDA driver's
own bp.compiler, and the SDK's compiler to SPIR-V: each source in each of its dtypes. Nothing is run, but what the last
one's tree prints. All are long, but for the compiler to SPIR-V in one dtype.
"""

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from checker import Built

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "backend" / "kernels" / "portable"
OPENCL = re.search(r'R"cl\((.*)\)cl"', (ROOT / "drivers/opencl/prelude.h").read_text(), re.DOTALL)[1]
DTYPES = ["float32", "bfloat16", "int64", "float64", "float16", "int32", "int16", "int8", "uint8", "bool", "complex64"]
DTYPES += ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


def wanted(dtype, items, folder):
    """The record of a run that uses every source with a dtype on a device of so many items: path and kernels."""
    record = folder / "record.json"
    options = {"MYDEVICE_OPTIONS": f"items={items},stream=inline", "MYDEVICE_RECORD_KERNELS": str(record)}
    program = [sys.executable, Path(__file__).with_name("every_source.py"), dtype]
    subprocess.run(program, env={**os.environ, **options}, check=True, timeout=250)
    return record, json.loads(record.read_text())["kernels"]


def unit_of(kernel, prelude, items=64):
    """A unit of compilation, as docs/dialect.md describes."""
    words = {"BP_GROUP": items, "BP_PER_ITEM": kernel["per_item"], "BP_HAS_F64": 1, "BP_VECTOR_BYTES": 16}
    head = "".join(f"#define {word} {value}\n" for word, value in words.items())
    files = {path.name: path for path in LIBRARY.rglob("*.bpc")}
    texts = [files[name].read_text() for name in ["core.bpc", *kernel["files"]]]
    return "\n".join([kernel["definitions"], head, prelude, *texts, kernel["text"]])


def by_pocl():
    import pyopencl as opencl

    pocl = [one for one in opencl.get_platforms() if one.name == "Portable Computing Language"]
    assert pocl
    devices = [one.get_devices()[0] for one in pocl]
    # A PoCL whose LLVM is older than the processor, as pip's, calls it "generic", and then refuses that name.
    known = [device for device in devices if not device.version.endswith("-generic")]
    context = opencl.Context(known[:1])

    def compile_(kernel):
        try:
            opencl.Program(context, unit_of(kernel, OPENCL)).build(["-cl-std=CL1.2"], cache_dir=False)
        except opencl.RuntimeError as error:
            return str(error)
        return ""

    return compile_


# requirements-dev.txt brings pyopencl and NVRTC along: there, one that is missing is a failure.
WHEELS = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="there are no wheels of the compilers"
)


@WHEELS
@pytest.mark.long
@pytest.mark.system
@pytest.mark.parametrize("dtype", DTYPES)
def test_F13_opencl_takes_every_source(dtype, tmp_path):
    compile_ = by_pocl()
    _, kernels = wanted(dtype, 64, tmp_path)
    if dtype == "float32":
        sources = {path.name for path in LIBRARY.glob("*.bpc")} | {"generated.bpc"}
        assert sources - {name for kernel in kernels for name in kernel["files"]} == set()
    with ThreadPoolExecutor(2) as pool:
        logs = dict(zip([kernel["name"] for kernel in kernels], pool.map(compile_, kernels), strict=True))
    assert {name: log[:2000] for name, log in logs.items() if log} == {}
    wrong = {**kernels[0], "definitions": "no_such_word\n"}
    assert "no_such_word" in compile_(wrong)


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.system)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_F13_a_cores_compiler_takes_every_source(dtype, compiler, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"this machine has no {compiler}")
    record, kernels = wanted(dtype, 1, tmp_path)
    out = tmp_path / "kernels"
    command = [sys.executable, "-m", "backplane_tools", "precompile", "--record", record, "--out", out]
    done = subprocess.run(
        [*command, "--target", "x86-64-v2"],
        env={**os.environ, "CC": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{len(kernels)} kernels in ")


def cuda_driver(folder):
    """NVRTC is what it finds by itself."""
    folders = importlib.util.find_spec("nvidia").submodule_search_locations
    assert any(path for folder in folders for path in Path(folder).glob("*/lib/libnvrtc.so.1[0-9]"))
    return Built(folder).sdk_driver("cuda")


def precompile(record, out, driver, *targets):
    command = [sys.executable, "-m", "backplane_tools", "precompile", "--record", record, "--out", out]
    for target in targets:
        command += ["--target", target]
    variables = {**os.environ, "MYDEVICE_DRIVER": str(driver), "VIRTUAL_ENV": sys.prefix}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def with_kernels(record, content, kernels):
    """The record with these of its kernels alone."""
    record.write_text(json.dumps({**content, "kernels": kernels}))
    return record


@WHEELS
@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "targets"),
    [
        ("float32", ["sm_90"]),
        *((dtype, ["sm_80", "sm_90", "compute_80"]) for dtype in DTYPES),
    ],
)
def test_F13_the_cuda_driver_takes_every_source(dtype, targets, tmp_path):
    """On a machine without CUDA: NVRTC makes cubins and PTX, which precompile keeps."""
    driver = cuda_driver(tmp_path)
    record, kernels = wanted(dtype, 64, tmp_path)
    content = json.loads(record.read_text())
    tiles = [kernel for kernel in content["kernels"] if "#if BP_GROUP != 64" in json.dumps(kernel)]
    refused = precompile(with_kernels(record, content, tiles), tmp_path / "tiles", driver, targets[0])
    assert "tiles that max_autotune chose for groups of 64, not of this target's" in refused.stderr or not tiles
    kernels = [kernel for kernel in content["kernels"] if kernel not in tiles]
    with_kernels(record, content, kernels)
    done = precompile(record, tmp_path / "kernels", driver, *targets)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{len(kernels) * len(targets)} kernels in ")
    if dtype == "float32":
        sources = {path.name for path in LIBRARY.glob("*.bpc")}
        assert sources - {name for kernel in kernels for name in kernel["files"]} == set()
    wrong = json.loads(record.read_text())
    wrong["kernels"] = [{**wrong["kernels"][0], "definitions": "no_such_word\n"}]
    record.write_text(json.dumps(wrong))
    done = precompile(record, tmp_path / "wrong", driver, targets[0])
    assert done.returncode == 1
    assert "no_such_word" in done.stderr


@pytest.fixture(scope="module")
def spirv_tool(tmp_path_factory):
    sources = [*sorted((ROOT / "drivers" / "spirv").glob("*.cpp")), ROOT / "tests" / "host" / "spirv_tool.cpp"]
    out = tmp_path_factory.mktemp("spirv") / "spirv_tool"
    out.with_suffix(".cpp").write_text("".join(f'#include "{path}"\n' for path in sources))
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    subprocess.run([compiler, "-std=c++20", "-O1", out.with_suffix(".cpp"), "-o", out], check=True)
    return out


@pytest.mark.long_after_first
@pytest.mark.system
@pytest.mark.parametrize("items", [1, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_F13_spirv_of_every_source_is_valid(dtype, items, spirv_tool, tmp_path):
    _, kernels = wanted(dtype, items, tmp_path)
    prelude = subprocess.run([spirv_tool, "words"], capture_output=True, text=True, check=True).stdout
    files = []
    for number, kernel in enumerate(kernels):
        files.append(tmp_path / f"{number}.c")
        files[-1].write_text(unit_of(kernel, prelude, items))
    for device, target in {"vulkan": "vulkan1.1", "vulkan-exact": "vulkan1.2", "kernel": "spv1.2"}.items():
        out = tmp_path / device
        out.mkdir()
        done = subprocess.run([spirv_tool, "compile", device, out, *files], capture_output=True, text=True, check=True)
        # The simulated device has more local memory than these.
        lines = list(zip(kernels, files, done.stdout.splitlines(), strict=True))
        fitting = [one for one in lines if items > 1 or "the local arrays of" not in one[2]]
        assert [(kernel["name"], line) for kernel, _, line in fitting if not line.startswith("ok ")] == []
        left_out = {kernel["files"][-1] for kernel, *_ in lines} - {kernel["files"][-1] for kernel, *_ in fitting}
        assert left_out <= {"matmul.bpc", "convolution.bpc", "depthwise.bpc", "attention_backward.bpc"}
        for kernel, path, _ in fitting:
            module = out / f"{path.stem}.spv"
            valid = subprocess.run(
                ["spirv-val", "--target-env", target, module], capture_output=True, text=True, check=False
            )
            assert valid.returncode == 0, kernel["name"] + valid.stdout + valid.stderr


@pytest.mark.long
@pytest.mark.parametrize("items", [1, 64])
def test_F13_what_the_tree_prints_computes_the_same(items, tmp_path):
    """Each unit is read into the tree of drivers/spirv and printed; the simulated device compiles that."""
    shim = Built(tmp_path).unit(
        "printed", [*sorted((ROOT / "drivers" / "spirv").glob("*.cpp")), ROOT / "tests" / "driver" / "printed_shim.cpp"]
    )
    variables = {"MYDEVICE_SHIMS": str(shim), "MYDEVICE_OPTIONS": f"items={items}", "MYDEVICE_KERNELS": "strict"}
    variables |= {"MYDEVICE_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, Path(__file__).with_name("printed_values.py")]
    done = subprocess.run(program, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
