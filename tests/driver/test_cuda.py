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
from checker import ROOT, Built, Report, check, run
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


@pytest.fixture(autouse=True)
def _own_junit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path))


def pips_nvrtc() -> Path:
    package = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in package.submodule_search_locations or []] if package else []
    found = [path for folder in folders for path in folder.glob("*/lib/libnvrtc.so.1[0-9]")]
    if not found:
        pytest.skip("there is no NVRTC: pip install nvidia-cuda-nvrtc-cu12")
    return found[0]


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


def test_managed_memory_is_the_hosts_too(built: Built, cuda: Cuda) -> None:
    words = only("host_view.*", "memory.*", "copy.*", "pointer.*", "ext.*", "vmm.*", "ipc.*")
    report = check(built, cuda.driver, *cuda.options("memory=managed"), *words)
    assert (report.code, report.failed, report.left_out) == (0, {}, {}), report.out
    assert {"host_view.map", "host_view.flags", "host_view.invalid"} <= report.passed
    assert families(report.not_offered) == {"vmm", "ipc"}


@pytest.mark.parametrize(("part", "cases"), [("entries", 13), ("modules", 6)])
def test_what_cuda_is_asked(cuda: Cuda, part: str, cases: int) -> None:
    ask(cuda, part, cases)


def test_H06_what_graphs_ask_of_cuda(cuda: Cuda) -> None:
    ask(cuda, "graphs", 9)


def ask(cuda: Cuda, part: str, cases: int) -> None:
    path = {"PATH": f"{pips_nvrtc_environment()}:{os.environ['PATH']}"} if part != "entries" else {}
    done = run([str(cuda.program), str(cuda.driver), str(cuda.fake), part], check=False, **path)
    assert [line for line in done.stdout.splitlines() if line.startswith("FAIL")] == []
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(line.startswith("ok ") for line in done.stdout.splitlines()) == cases, done.stdout


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
    """No library, no NVRTC: no device, targets with names, and errors that tell what was looked for."""
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


def test_the_interface_is_nvidias(tmp_path: Path) -> None:
    toolkit = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include", pips_nvrtc().parents[1] / "include"]
    if not (toolkit[0] / "cuda.h").exists():
        pytest.skip("this machine has no cuda.h")
    declared = (ROOT / "drivers" / "cuda" / "cuda_api.h").read_text()
    names = re.findall(r"^\s+((?:CUDA_|CU_|NVRTC_)[A-Z0-9_]+) = ", declared, re.MULTILINE)
    assert len(names) > 80
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-fsyntax-only"]
    values = f"-DVALUES(X)={' '.join(f'X({name})' for name in names)}"
    command = [*compiler, *(f"-I{folder}" for folder in toolkit), f"-I{ROOT / 'include'}", values]
    run([*command, str(HERE / "cuda_abi.cpp")])

    copy = tmp_path / "tests" / "driver" / "cuda_abi.cpp"
    copy.parent.mkdir(parents=True)
    copy.write_text((HERE / "cuda_abi.cpp").read_text())
    header = tmp_path / "drivers" / "cuda" / "cuda_api.h"
    header.parent.mkdir(parents=True)
    header.write_text(declared.replace("CUDA_ERROR_ASSERT = 710", "CUDA_ERROR_ASSERT = 711"))
    done = run([*command, str(copy)], check=False)
    assert done.returncode != 0
    assert "CUDA_ERROR_ASSERT" in done.stderr
