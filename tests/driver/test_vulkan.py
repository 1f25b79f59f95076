"""drivers/vulkan on lavapipe: the contract in both kinds of memory, under the shims; other devices; options; errors.

``vulkan_wrap.cpp`` is a loader whose devices have less than lavapipe, or more, or fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from checker import ROOT, Built, Report, check, run
from test_check_driver import listed, only

pytestmark = pytest.mark.system

# The driver has no functions on the host, addresses without memory, memory between processes, collectives,
LEFT_OUT_FAMILIES = ("host_exec", "vmm", "ipc", "collective", "peer")
# access between devices, free memory, current device, limit of streams, native streams, trap, and optional words.
LEFT_OUT = set(
    """device.memory_info life.device_memory device.set_current stream.limit stream.native module.fault
    dialect.natives dialect.rows dialect.vectors fault.skipped graph.host_functions
    ttir.compile ttir.wrong_source ttir.values""".split()
)
NO_VIEW = {"host_view.map", "host_view.flags", "host_view.invalid"}  # of memory that the host does not reach
LOOPS = "dialect.launches=lavapipe ends the loops of an item after 65535 iterations in all"
PARTS = "sub_devices=2,"
MEMORY = pytest.mark.parametrize("memory", ["unified", "staged"])
# Of Mesa and the validation layers, by name: what else is on the machine is not asked.
ICD = next(iter(sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd.*.json"))), None)


@pytest.fixture(autouse=True)
def _validation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VK_ICD_FILENAMES", str(ICD))
    monkeypatch.setenv("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(scope="session")
def vulkan(built: Built) -> Path:
    return built.sdk_driver("vulkan")


@pytest.fixture(scope="session")
def wrap(built: Built) -> Path:
    """The loader over the system's."""
    source = str(ROOT / "tests" / "driver" / "vulkan_wrap.cpp")
    words = ["g++", "-std=c++17", "-shared", "-fPIC", f"-I{ROOT / 'include'}", source, "-ldl"]
    return built.once("libvulkan_wrap.so", lambda out: run([*words, "-o", str(out)]))


def held(built: Built, driver: Path, options: str, *words: str) -> Report:
    report = check(built, driver, "--options", options.rstrip(","), "--time-limit=60", *words)
    for output in (report.out, report.err):
        assert "Validation" not in output, output
        assert "VUID" not in output, output
    return report


def sound(report: Report, missing: set[str]) -> None:
    assert (report.code, report.failed) == (0, {}), report.out
    assert set(report.not_offered) == missing


def not_offered(built: Built) -> set[str]:
    return LEFT_OUT | {name for name in listed(built) if name.startswith(LEFT_OUT_FAMILIES)}


# ---- the contract

QUICK = (
    "memory.*",
    "copy.*",
    "fill.*",
    "pointer.*",
    "pinned.*",
    "stream.[owd]*",
    "event.*",
    "callback.*",
    "fork.*",
    "life.fresh",
)


@pytest.mark.long_after_first
@MEMORY
def test_a_part_of_the_contract(built: Built, vulkan: Path, memory: str) -> None:
    report = held(built, vulkan, f"{PARTS}memory={memory},", *only(*QUICK))
    sound(report, set())
    assert len(report.passed) > 40


@pytest.mark.long_after_first
@MEMORY
def test_kernels(built: Built, vulkan: Path, memory: str) -> None:
    names = (
        "compiler.*",
        "module.load",
        "module.values",
        "module.order",
        "module.refused",
        "dialect.groups",
        "graph.kernels",
    )
    sound(held(built, vulkan, f"memory={memory},", *only(*names)), set())


@pytest.mark.long_after_first
@MEMORY
def test_H06_graphs(built: Built, vulkan: Path, memory: str) -> None:
    report = held(built, vulkan, f"{PARTS}memory={memory},", *only("graph.*"))
    sound(report, {"graph.host_functions"})
    assert len(report.passed) == 14


@pytest.mark.long
@pytest.mark.parametrize("options", ["memory=unified,", "memory=staged,", "memory=unified,items=256,"])
def test_the_contract(built: Built, vulkan: Path, options: str) -> None:
    report = held(built, vulkan, PARTS + options, "--expect", LOOPS)
    sound(report, not_offered(built) | (NO_VIEW if "staged" in options else set()))
    assert len(report.passed | set(report.not_offered) | set(report.left_out)) == len(listed(built))


@pytest.mark.long
@pytest.mark.parametrize("shim", ["emulate", "trace", "fault"])
@MEMORY
def test_under_a_shim(built: Built, vulkan: Path, shim: str, memory: str) -> None:
    options = f"{PARTS}memory={memory}," + ("trace.file=/dev/null," if shim == "trace" else "")
    report = held(built, vulkan, options, "--shim", shim, "--expect", LOOPS)
    assert (report.code, report.failed) == (0, {}), report.out


# ---- other devices

OTHERS = {
    "no-import": ("copy.*", "pinned.*", "graph.contents", "stream.*"),  # the host copies
    "no-clock": ("event.*", "stream.*"),
    "no-timestamps": ("event.*", "stream.*"),  # the host's clock
    "no-small-types": ("module.values", "dialect.integers", "dialect.functions"),  # words of 32 bits
    "no-float64": ("module.values", "dialect.floats"),
    "no-float-atomics": ("dialect.atomics",),
    "queues": ("stream.*", "event.*", "copy.*"),
    "budget": ("device.*",),
    "discrete": ("copy.*", "pinned.*"),
    "elsewhere": ("host_view.*",),
    "vulkan-1.2": ("module.values", "copy.kinds"),
    "no-int64": ("memory.*",),
}


@pytest.mark.long_after_first
@pytest.mark.parametrize("words", OTHERS)
def test_other_devices(built: Built, vulkan: Path, wrap: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VULKAN_WRAP", words)
    report = held(built, vulkan, f"{PARTS}library={wrap},", *only(*OTHERS[words]))
    assert (report.code, report.failed) == (0, {}), report.out
    assert report.passed
    assert ("device.memory_info" in report.passed) == (words == "budget")
    assert ("stream.priorities" in report.passed) or words not in ("queues",)


def test_a_device_without_64_bit_integers_has_no_compiler(
    built: Built, vulkan: Path, wrap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VULKAN_WRAP", "no-int64")
    report = held(built, vulkan, f"library={wrap},", *only("compiler.id", "memory.zero"))
    assert (report.passed, set(report.not_offered)) == ({"memory.zero"}, {"compiler.id"}), report.out


def test_pipelines_are_kept(built: Built, vulkan: Path, tmp_path: Path) -> None:
    """A file for each; one that is damaged is made again."""
    folder = tmp_path / "pipelines"
    for _ in range(2):
        sound(held(built, vulkan, f"cache={folder},", *only("module.values")), set())
        (first, *_) = files = sorted(folder.iterdir())
        assert all(file.suffix == ".vkpc" and file.stat().st_size >= 32 for file in files)
        first.write_bytes(b"damaged")
    sound(held(built, vulkan, f"cache={folder},", *only("module.values")), set())
    assert first.stat().st_size >= 32


@pytest.mark.parametrize("case", ["lost", "full", "memory"])
def test_failures_of_the_device(built: Built, vulkan: Path, wrap: Path, case: str) -> None:
    """vulkan_failure_test.cpp: a lost device is lost for good, a lack of memory is over when there is some."""
    program = built.program_of(ROOT / "tests" / "driver" / "vulkan_failure_test.cpp")
    done = run([str(program), str(vulkan), f"library={wrap}", case], VULKAN_WRAP=f"{case}=20", VK_INSTANCE_LAYERS="")
    assert done.stdout.splitlines()[-1] == f"{case}: as the contract says"


# ---- options

REFUSED = {
    "library=/no/such.so": "no Vulkan library can be opened: /no/such.so: cannot open shared object file",
    "library=libc.so.6": "libc.so.6: not a Vulkan library: it has no vkGetInstanceProcAddr",
    "device=nobody": "no Vulkan device of device=nobody; the devices are 0 (",
    "device_type=discrete": "no Vulkan device of device_type=discrete; the devices are 0 (",
    "device_type=quantum": "device_type=quantum: auto|discrete|integrated|virtual|cpu|all is needed; known: library=<",
    "sub_devices=0": "sub_devices=0: a number from 1 to 16 is needed",
    "memory=2GiB": "memory=2GiB: auto|unified|staged is needed",
    "items=3": "items=3: auto|1|16|32|64|128|256|512 is needed",
    "cache=/proc/none": "cache=/proc/none: the folder cannot be made or written",
    "colour=red": "unknown option 'colour'; known: library=<path>",
}
WITHOUT = {
    "no-driver": "Vulkan has no driver of a device (vkCreateInstance) Install the loader and a driver",
    "no-device": "Vulkan has no device Install the loader and a driver",
    "old": "a device of Vulkan 1.1; 1.2 or newer is needed",
    "no-address": "the device does not have bufferDeviceAddress of Vulkan 1.2",
    "no-timeline": "the device does not have timelineSemaphore of Vulkan 1.2",
    "no-address,no-timeline": "the device does not have bufferDeviceAddress and timelineSemaphore of Vulkan 1.2",
    "not-cached": "memory=unified: the device llvmpipe",
}


@pytest.mark.parametrize("option", REFUSED)
def test_unsupported_options_are_refused_with_a_reason(built: Built, vulkan: Path, option: str) -> None:
    report = held(built, vulkan, f"{option},", *only("memory.zero"))
    assert (report.code, set(report.failed)) == (2, {"load.answer"}), report.out
    assert REFUSED[option] in " ".join(report.out.split())


@pytest.mark.parametrize("words", WITHOUT)
def test_unusable_devices_are_refused_with_a_reason(
    built: Built, vulkan: Path, wrap: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VULKAN_WRAP", words)
    report = held(built, vulkan, f"library={wrap},memory=unified,", *only("memory.zero"))
    assert (report.code, set(report.failed)) == (2, {"load.answer"}), report.out
    assert WITHOUT[words] in " ".join(report.out.split())
