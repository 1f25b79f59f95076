"""bp.collective of the CUDA driver: over a fake libnccl.so.2 beside the fake libcuda.so.1, and NVIDIA's own header."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from checker import ROOT, Built, check, compile_unit, hold_cases, run
from test_check_driver import only
from test_cuda import fake_cuda, holds_the_interface, pips

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
COMPUTES = ("communicator", "exchange", "rendezvous", "reduce", "shared_file")  # of the simulated device
NOT_NCCLS = {"barrier", "many", "lost_peer", "disagree"}


@dataclass(frozen=True)
class Nccl:
    """The driver, and the libraries in NVIDIA's place."""

    driver: Path
    cuda: Path
    library: Path
    program: Path

    def options(self, *more: str) -> list[str]:
        return ["--options", ",".join([f"libcuda={self.cuda}", *more])]


@pytest.fixture(scope="module")
def nccl(built: Built) -> Nccl:
    drivers = ROOT / "drivers"
    computes = [*sorted(drivers.glob("engine/*.cpp")), *(drivers / "sim" / f"{name}.cpp" for name in COMPUTES)]
    library = built.unit("fake_nccl", [*computes, *sorted((HERE / "fake_nccl").glob("*.cpp"))])
    return Nccl(built.sdk_driver("cuda"), fake_cuda(built), library, built.program_of(HERE / "nccl_test.cpp"))


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, nccl: Nccl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA", str(nccl.cuda))
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "4")


@pytest.mark.parametrize("shim", ["", "fault", "trace"])
def test_the_contract(built: Built, nccl: Nccl, shim: str) -> None:
    """Up to four ranks, a process and a device each."""
    shims = ["--shim", shim] if shim else []
    report = check(built, nccl.driver, *nccl.options(f"nccl={nccl.library}"), *only("collective.*"), *shims)
    assert (report.code, report.failed, report.left_out) == (0, {}, {}), report.out
    assert set(report.not_offered) == {f"collective.{name}" for name in NOT_NCCLS}
    assert all("its flags lack" in why for why in report.not_offered.values())
    assert {"collective.reductions", "collective.groups", "collective.split", "collective.absent"} <= report.passed


def test_calls_of_nccl(nccl: Nccl) -> None:
    done = run([str(nccl.program), str(nccl.driver), str(nccl.cuda), str(nccl.library)], check=False)
    assert hold_cases(done) == 17


def test_a_sum_that_is_wrong_is_found(built: Built, nccl: Nccl, tmp_path: Path) -> None:
    """The fake computes: with MAX in SUM's place check-driver sees it."""
    sources = ROOT / "drivers" / "cuda"
    text = (sources / "collective.cpp").read_text()
    wrong = text.replace("known->nccl, ncclSum", "known->nccl, ncclMax")
    assert wrong != text
    changed = tmp_path / "collective.cpp"
    changed.write_text(wrong.replace('#include "', f'#include "{sources}/'))
    others = [*(ROOT / "drivers" / "engine").glob("*.cpp"), *sources.glob("*.cpp")]
    compile_unit(tmp_path / "libwrong.so", [*(path for path in others if path.name != changed.name), changed])
    words = only("collective.reductions", "collective.moves")
    report = check(built, tmp_path / "libwrong.so", *nccl.options(f"nccl={nccl.library}"), *words)
    assert set(report.failed) == {"collective.reductions"}
    assert report.passed == {"collective.moves"}


def place(nccl: Nccl, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "libnccl.so.2").symlink_to(nccl.library)


def test_nccl_is_found(built: Built, nccl: Nccl, tmp_path: Path) -> None:
    """By the loader, in the toolkit, and among the packages of an environment."""
    place(nccl, tmp_path / "loader")
    place(nccl, tmp_path / "toolkit" / "lib64")
    place(nccl, tmp_path / "environment" / "lib" / "python3.10" / "site-packages" / "nvidia" / "nccl" / "lib")
    for variables in (
        {"LD_LIBRARY_PATH": str(tmp_path / "loader")},
        {"CUDA_HOME": str(tmp_path / "toolkit")},
        {"VIRTUAL_ENV": str(tmp_path / "environment")},
    ):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        words = [str(built.program), str(nccl.driver), *nccl.options(), "--only", "collective.leftovers"]
        done = run(words, check=False, FAKE_NCCL_LOG=str(log), **variables)
        assert "1 passed, 0 failed" in done.stdout, done.stdout
        assert "ncclCommDestroy" in log.read_text()


@pytest.mark.parametrize(("option", "version"), [("off", ""), ("/no/such/libnccl.so.2", ""), ("", "21210")])
def test_without_nccl_there_is_no_group(
    built: Built, nccl: Nccl, option: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is as it was: nccl_test.cpp has what it says."""
    if version:
        monkeypatch.setenv("FAKE_NCCL_VERSION", version)
    words = only("collective.*", "memory.*")
    report = check(built, nccl.driver, *nccl.options(f"nccl={option or nccl.library}"), *words)
    assert (report.code, report.failed) == (0, {}), report.out
    assert {name.split(".")[0] for name in report.passed} == {"memory"}
    assert {name.split(".")[0] for name in report.not_offered} == {"collective"}


def test_the_interface_is_nvidias(tmp_path: Path) -> None:
    header = pips("nccl/include/nccl.h", "there is no nccl.h: pip install nvidia-nccl-cu12").parent
    # Of the CUDA runtime nccl.h takes the name of a stream and of an event.
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name in ("fp16", "bf16", "fp8"):
        (stubs / f"cuda_{name}.h").touch()
    (stubs / "cuda_runtime.h").write_text(
        "#define CUDART_VERSION 12000\n"
        "typedef struct CUstream_st* cudaStream_t;\ntypedef struct CUevent_st* cudaEvent_t;\n"
    )
    names = r"^\s+((?:nccl|NCCL_)\w+) = "
    change = ("ncclBfloat16 = 9", "ncclBfloat16 = 10")
    holds_the_interface(tmp_path, "nccl_api.h", "nccl_abi.cpp", names, change, stubs, header)
