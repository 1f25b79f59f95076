# tests/driver/test_cuda.py: the CUDA driver over a fake libcuda.so.1, and with NVRTC where pip has it.
"""check-driver holds the contract, cuda_test.cpp what is CUDA's own; cuda_abi.cpp needs NVIDIA's header."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from checker import ROOT, Built, Report, check, hold_cases, run
from test_check_driver import listed, only

pytestmark = pytest.mark.long  # the driver and the library in the GPU's place are compiled

HERE = Path(__file__).parent
NOT_RUN = "nothing here runs PTX"
RUN_KERNELS = {"module.*", "dialect.*", "graph.kernels"}
SKIPPED = [word for name in sorted(RUN_KERNELS) for word in ("--skip", f"{name}={NOT_RUN}")]


@dataclass(frozen=True)
class Cuda:
    """The driver, and the library in the GPU's place."""

    driver: Path
    fake: Path
    program: Path

    def options(self, *more: str) -> list[str]:
        return ["--options", ",".join([f"libcuda={self.fake}", "nccl=off", *more])]


def fake_cuda(built: Built) -> Path:
    return built.unit("fake_cuda", sorted((HERE / "fake_cuda").glob("*.cpp")))


@pytest.fixture(scope="module")
def cuda(built: Built) -> Cuda:
    return Cuda(built.sdk_driver("cuda"), fake_cuda(built), built.program_of(HERE / "cuda_test.cpp"))


def pips(pattern: str, otherwise: str) -> Path:
    """The first file of that name in NVIDIA's packages of pip."""
    package = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in package.submodule_search_locations or []] if package else []
    found = [path for folder in folders for path in folder.glob(pattern)]
    if not found:
        pytest.skip(otherwise)
    return found[0]


def pips_nvrtc() -> Path:
    return pips("*/lib/libnvrtc.so.1[0-9]", "there is no NVRTC: pip install nvidia-cuda-nvrtc-cu12")


def families(names: set[str] | dict[str, str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def hold(report: Report, *not_offered: str) -> None:
    assert (report.code, report.failed) == (0, {}), report.out
    assert families(report.left_out) == families(RUN_KERNELS)
    assert {name for name in report.left_out if name.startswith("graph.")} == {"graph.kernels"}
    assert set(report.left_out.values()) == {f"skipped: {NOT_RUN}"}
    assert families(report.not_offered) - {"fault", "lost"} == {
        "host_exec",
        "collective",
        "graph",
        "stream",
        "ttir",
        *not_offered,
    }
    of_streams = {name for name in report.not_offered if name.startswith(("stream.", "graph."))}
    assert of_streams == {"stream.limit", "graph.host_functions"}


def test_the_contract(built: Built, cuda: Cuda) -> None:
    report = check(built, cuda.driver, *cuda.options(f"nvrtc={pips_nvrtc()}"), *SKIPPED)
    hold(report, "host_view")
    assert len(report.passed) + len(report.not_offered) + len(report.left_out) == len(listed(built))
    assert {"compiler.forked", "ipc.events", "fault.sticky", "lost.isolated", "vmm.account"} <= report.passed


@pytest.mark.parametrize("shim", ["fault", "trace", "emulate"])
def test_the_contract_under_shims(built: Built, cuda: Cuda, shim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "3")
    report = check(built, cuda.driver, *cuda.options(f"nvrtc={pips_nvrtc()}"), *SKIPPED, "--shim", shim)
    hold(report, "host_view")


def test_managed_memory_is_accessible_on_the_host(built: Built, cuda: Cuda) -> None:
    words = only("host_view.*", "memory.*", "copy.*", "pointer.*", "ext.*", "vmm.*", "ipc.*")
    report = check(built, cuda.driver, *cuda.options("memory=managed"), *words)
    assert (report.code, report.failed, report.left_out) == (0, {}, {}), report.out
    assert {"host_view.map", "host_view.flags", "host_view.invalid"} <= report.passed
    assert families(report.not_offered) == {"vmm", "ipc"}


@pytest.mark.parametrize(("part", "cases"), [("entries", 12), ("modules", 6)])
def test_calls_of_cuda(cuda: Cuda, part: str, cases: int) -> None:
    ask(cuda, part, cases)


def test_H06_calls_of_cuda_for_graphs(cuda: Cuda) -> None:
    ask(cuda, "graphs", 9)


def ask(cuda: Cuda, part: str, cases: int) -> None:
    path = {"PATH": f"{pips_nvrtc_environment()}:{os.environ['PATH']}"} if part != "entries" else {}
    done = run([str(cuda.program), str(cuda.driver), str(cuda.fake), part], check=False, **path)
    assert hold_cases(done) == cases


def pips_nvrtc_environment() -> Path:
    """A folder of programs from which the driver finds pip's NVRTC, as it does in a virtual environment."""
    nvrtc = pips_nvrtc()
    environment = Path(os.environ["PYTEST_TMP"]) / "environment"
    packages = environment / "lib" / "python3.10" / "site-packages" / "nvidia"
    packages.mkdir(parents=True)
    (packages / nvrtc.parents[1].name).symlink_to(nvrtc.parents[1])
    (environment / "bin").mkdir()
    (environment / "bin" / "python3").touch()
    return environment / "bin"


def test_pips_nvrtc_is_found(built: Built, cuda: Cuda) -> None:
    """By an environment's folder of programs, and without libcuda."""
    environment = pips_nvrtc_environment().parent
    words = ["--only", "compiler.compile", "--only", "compiler.list"]
    for variables in ({"VIRTUAL_ENV": str(environment)}, {"PATH": f"{environment / 'bin'}:/usr/bin:/bin"}):
        done = run([str(built.program), str(cuda.driver), *words], check=False, **variables)
        assert "2 passed, 0 failed" in done.stdout, done.stdout


def test_a_machine_without_cuda(built: Built, cuda: Cuda) -> None:
    """No library, no NVRTC: no device, targets with names, and errors that list what was looked for."""
    words = only("device.count", "compiler.*", "life.unopened", "fork.before_open")
    missing = "/no/such/libnvrtc.so.12"
    report = check(built, cuda.driver, "--options", f"nvrtc={missing}", *words)
    assert (report.code, report.failed) == (2, {}), report.out
    named = {f"compiler.{name}" for name in ("id", "target", "list", "prelude", "invalid")}
    assert report.passed == named | {"device.count", "life.unopened", "fork.before_open"}
    assert report.left_out
    for why in report.left_out.values():
        assert why.startswith("compiler.compile: no NVRTC on this machine")
        assert missing in why


def holds_the_interface(
    tmp_path: Path, api: str, abi: str, names: str, change: tuple[str, str], *includes: Path
) -> None:
    """Our declarations, the names' values among them, are those of NVIDIA's header; a changed one is noticed."""
    declared = (ROOT / "drivers" / "cuda" / api).read_text()
    found = re.findall(names, declared, re.MULTILINE)
    assert len(found) >= 25
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-fsyntax-only"]
    values = f"-DVALUES(X)={' '.join(f'X({name})' for name in found)}"
    command = [*compiler, *(f"-I{folder}" for folder in includes), f"-I{ROOT / 'include'}", values]
    run([*command, str(HERE / abi)])

    for folder, name in (
        ("tests/driver", abi),
        *(("drivers/cuda", path.name) for path in (ROOT / "drivers/cuda").glob("*_api.h")),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text((ROOT / folder / name).read_text())
    assert change[0] in declared
    (tmp_path / "drivers" / "cuda" / api).write_text(declared.replace(*change))
    done = run([*command, str(tmp_path / "tests" / "driver" / abi)], check=False)
    assert done.returncode != 0
    assert change[0].split()[0] in done.stderr


def test_the_interface_is_nvidias(tmp_path: Path) -> None:
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    if not (toolkit / "cuda.h").exists():
        pytest.skip("this machine has no cuda.h")
    names = r"^\s+((?:CUDA_|CU_|NVRTC_)[A-Z0-9_]+) = "
    change = ("CUDA_ERROR_ASSERT = 710", "CUDA_ERROR_ASSERT = 711")
    includes = (toolkit, pips_nvrtc().parents[1] / "include")
    holds_the_interface(tmp_path, "cuda_api.h", "cuda_abi.cpp", names, change, *includes)
