"""drivers/opencl on PoCL: the contract in each kind of memory, on parts of a device, under the shims; options; errors.

``opencl_usm.c`` is a library whose devices have what PoCL's have not.
"""

from __future__ import annotations

import ctypes
import importlib.util
import platform
from pathlib import Path

import pytest
from checker import ROOT, Built, Report, check, run
from test_check_driver import listed, only

# OpenCL has no functions on the host, addresses without memory, memory between processes, collectives between ranks,
LEFT_OUT_FAMILIES = ("host_exec", "vmm", "ipc", "collective")
# free memory, current device, pinning of the caller's memory, limit of queues, trap, and optional words.
LEFT_OUT = set(
    """device.memory_info life.device_memory device.set_current pinned.register pointer.registered stream.limit
    module.fault dialect.natives dialect.rows dialect.shuffle fault.skipped graph.host_functions
    ttir.compile ttir.wrong_source ttir.values""".split()
)
NO_VIEW = {"host_view.map", "host_view.flags", "host_view.invalid"}  # of memory that the host does not share
OVERFLOW = "dialect.overflow=OpenCL C has no option by which signed sums wrap"
PARTS = "sub_devices=2,"


def pips_library() -> str:
    folder = Path(importlib.util.find_spec("pyopencl").origin).parent / ".libs"
    return str(next(folder.glob("libOpenCL*")))


def not_offered(built: Built) -> set[str]:
    return LEFT_OUT | {name for name in listed(built) if name.startswith(LEFT_OUT_FAMILIES)}


def library() -> str:
    """The system's ICD loader, or the one that pip has installed."""
    try:
        ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return pips_library()
    return "libOpenCL.so.1"


@pytest.fixture(autouse=True)
def _own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCL_USM_LOG", str(tmp_path / "queues"))


@pytest.fixture(scope="session")
def opencl(built: Built) -> Path:
    return built.sdk_driver("opencl")


@pytest.fixture(scope="session")
def usm(built: Built) -> str:
    """The library with unified shared memory, over the system's loader, as an option."""
    source = str(ROOT / "tests" / "driver" / "opencl_usm.c")
    words = ["cc", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-shared", "-fPIC", source]
    words += ["-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl"]
    return f"library={built.once('libopencl_usm.so', lambda out: run([*words, '-o', str(out)]))},"


def held(built: Built, driver: Path, options: str, *words: str) -> Report:
    if "library=" not in options:
        options += f"library={library()}"
    return check(built, driver, "--options", options.rstrip(","), "--time-limit=60", *words)


def sound(report: Report, missing: set[str]) -> None:
    assert (report.code, report.failed) == (0, {}), report.out
    assert set(report.not_offered) == missing
    assert set(report.left_out) <= {"dialect.overflow"}


# ---- the contract

QUICK = (
    "memory.*",
    "copy.*",
    "fill.*",
    "pointer.*",
    "stream.[owd]*",
    "event.*",
    "callback.*",
    "fork.*",
    "life.fresh",
    "life.files",
)


@pytest.mark.system
def test_kernels_on_buffers_have_separate_local_arrays(built: Built, opencl: Path) -> None:
    report = held(built, opencl, "memory=buffers,", *only("dialect.local", "dialect.launches"))
    assert (report.failed, report.passed) == ({}, {"dialect.local", "dialect.launches"}), report.out


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no wheel of PoCL")
def test_an_old_pocl_compiles_nothing_for_buffers(
    built: Built, opencl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip's, which makes wrong code of local arrays there."""
    (icd,) = Path(pips_library()).parent.glob("*.icd")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(icd.parent))
    options = f"memory=buffers,library={pips_library()},"
    report = held(built, opencl, options, *only("compiler.compile", "dialect.local"))
    assert (report.code, report.passed, report.failed) == (3, set(), {}), report.out
    assert "memory=buffers; take memory=fine, or PoCL 3.1 or newer" in " ".join(report.out.split())


@pytest.mark.long_after_first
@pytest.mark.parametrize("memory", ["fine", "buffers"])
def test_a_part_of_the_contract(built: Built, opencl: Path, memory: str) -> None:
    report = held(built, opencl, f"{PARTS}memory={memory},", *only(*QUICK))
    sound(report, {"pointer.registered"})
    assert len(report.passed) > 40


@pytest.mark.long_after_first
@pytest.mark.system
@pytest.mark.parametrize("memory", ["fine", "buffers"])
def test_kernels(built: Built, opencl: Path, memory: str) -> None:
    names = (
        "compiler.*",
        "module.load",
        "module.values",
        "module.order",
        "module.refused",
        "dialect.groups",
        "graph.kernels",
    )
    sound(held(built, opencl, f"memory={memory},", *only(*names)), set())


@pytest.mark.long_after_first
@pytest.mark.system
@pytest.mark.parametrize("memory", ["fine", "buffers"])
def test_H06_graphs(built: Built, opencl: Path, memory: str) -> None:
    report = held(built, opencl, f"{PARTS}memory={memory},", *only("graph.*"))
    sound(report, {"graph.host_functions"})
    assert len(report.passed) == 14


@pytest.mark.long
@pytest.mark.system
@pytest.mark.parametrize("options", ["memory=fine,", "memory=coarse,", "memory=buffers,", "memory=fine,items=64,"])
def test_the_contract(built: Built, opencl: Path, options: str) -> None:
    report = held(built, opencl, PARTS + options, "--expect", OVERFLOW)
    sound(report, not_offered(built) | (set() if "fine" in options else NO_VIEW))
    assert len(report.passed | set(report.not_offered) | set(report.left_out)) == len(listed(built))


@pytest.mark.long
@pytest.mark.system
def test_unified_shared_memory(built: Built, opencl: Path, usm: str) -> None:
    """Chosen where there is no memory that host and device share."""
    report = held(built, opencl, PARTS + usm, "--expect", OVERFLOW)
    sound(report, not_offered(built) | NO_VIEW)
    refused = held(built, opencl, f"memory=fine,{usm}", *only("memory.zero"))
    assert "it has buffers, usm" in " ".join(refused.out.split())


@pytest.mark.long
@pytest.mark.system
@pytest.mark.parametrize("shim", ["emulate", "trace", "fault"])
@pytest.mark.parametrize("memory", ["fine", "buffers"])
def test_under_a_shim(built: Built, opencl: Path, shim: str, memory: str) -> None:
    options = f"{PARTS}memory={memory}," + ("trace.file=/dev/null," if shim == "trace" else "")
    report = held(built, opencl, options, "--shim", shim, "--expect", OVERFLOW)
    assert (report.code, report.failed) == (0, {}), report.out
    families = {name.split(".")[0] for name in report.not_offered}
    # Under the fault shim the checks that load another one have nothing to load.
    assert families <= {name.split(".")[0] for name in not_offered(built) | NO_VIEW} | {"lost"}


@pytest.mark.long
@pytest.mark.system
def test_children_compile_that_were_forked_during_a_compilation(opencl: Path, tmp_path: Path) -> None:
    program = tmp_path / "opencl_fork_test"
    source = ROOT / "tests" / "driver" / "opencl_fork_test.cpp"
    run(["g++", "-std=c++17", f"-I{ROOT / 'include'}", str(source), "-o", str(program), "-lpthread", "-ldl"])
    done = run([str(program), str(opencl), f"library={library()}"], POCL_CACHE_DIR=str(tmp_path))
    assert done.stdout == "8 children compiled, 0 failures\n"


# ---- options


@pytest.mark.system
def test_priorities_and_throttling_reach_the_queues(built: Built, opencl: Path, usm: str, tmp_path: Path) -> None:
    report = held(built, opencl, f"throttle=low,{usm}", *only("stream.priorities"))
    assert (report.code, report.passed) == (0, {"stream.priorities"}), report.out
    high, medium, low = 1, 2, 4
    lines = (tmp_path / "queues").read_text().splitlines()
    assert {f"priority {one}" for one in (high, medium, low)} | {f"throttle {low}"} == set(lines)
    assert lines.count(f"throttle {low}") == len(lines) / 2


def test_a_platform_is_named_by_a_part_of_its_name_or_a_number(built: Built, opencl: Path) -> None:
    for name in ("portable COMP", "0"):
        report = held(built, opencl, f"platform={name},device_type=cpu,", *only("memory.zero"))
        assert (report.code, report.passed) == (0, {"memory.zero"}), report.out


def test_parts_share_what_the_device_has(built: Built, opencl: Path) -> None:
    report = held(built, opencl, PARTS, *only("device.*", "peer.*", "memory.unique"))
    sound(report, {"device.memory_info", "device.set_current"})
    assert "devices  2: " in report.out
    assert ", part 1 of 2 (" in report.out


REFUSED = {
    "language=spirv": "takes no SPIR-V (CL_DEVICE_IL_VERSION); use language=c",
    "library=/no/such.so": "no OpenCL library can be opened: /no/such.so: cannot open shared object file",
    "library=libc.so.6": "libc.so.6: no library of OpenCL 1.2, it lacks clGetPlatformIDs",
    "platform=nobody": "no device of platform=nobody; the platforms are 0 (",
    "device_type=accelerator": "no device of that device_type; the platforms are 0 (",
    "device_type=quantum": "device_type=quantum: auto|gpu|cpu|accelerator|all is needed; known: library=<path>",
    "sub_devices=64": "compute units, and each part needs one",
    "sub_devices=0": "sub_devices=0: a number from 1 to 64 is needed",
    "memory=2GiB": "memory=2GiB: auto|fine|coarse|usm|buffers is needed",
    "memory=usm": "does not offer it; it has buffers, fine, coarse",
    "throttle=low": "does not offer cl_khr_throttle_hints",
    "items=3": "items=3: auto|1|16|32|64|128|256|512 is needed",
    "colour=red": "unknown option 'colour'; known: library=<path>",
}


@pytest.mark.parametrize("option", REFUSED)
def test_unsupported_options_are_refused_with_a_reason(built: Built, opencl: Path, option: str) -> None:
    report = held(built, opencl, f"{option},", *only("memory.zero"))
    assert (report.code, set(report.failed)) == (2, {"load.answer"}), report.out
    assert REFUSED[option] in " ".join(report.out.split())


def test_a_machine_without_a_platform(
    built: Built, opencl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message lists what was looked at, a virtual environment's library among it."""
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    pip = tmp_path / "lib" / "python3.99" / "site-packages" / "pyopencl" / ".libs" / "libOpenCL-1234.so.1"
    pip.parent.mkdir(parents=True)
    pip.write_text("no library")
    report = check(built, opencl, "--options", "memory=auto", *only("memory.zero"))
    assert report.code == 2
    text = "".join(report.out.split())
    assert "pocl-opencl-icd" in text
    assert f"{pip}:" in text
