"""torch-backplane port: programs written for CUDA run on the device after it, with the CPU's values."""

import inspect
import json
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch.autograd.profiler_util import FunctionEventAvg

from backplane_tools.cli.port import port
from backplane_tools.port import names

PROGRAMS = Path(__file__).parents[1] / "cuda_programs"
NAMES = pytest.mark.parametrize("words", [[], ["--device", "mydevice"]], ids=["accelerator", "named"])


@pytest.fixture
def run(run_in_process):
    """``run(program, *options)``: the facts that a program prints."""

    def start(program: Path, *options: object) -> dict:
        words = [*map(str, (program, *options))]
        code = f"import runpy, sys\nsys.argv = {words}\nrunpy.run_path(sys.argv[0], run_name='__main__')"
        return json.loads(run_in_process(code).stdout.strip().splitlines()[-1])

    return start


def ported(program: str, folder: Path, words: list[str]) -> Path:
    path = Path(shutil.copy(PROGRAMS / program, folder))
    result = CliRunner().invoke(port, [str(path), "--write", *words])
    assert result.exit_code == 0, result.output
    assert CliRunner().invoke(port, [str(path), *words]).exit_code == 0  # nothing is left
    return path


@pytest.mark.long_after_first
@pytest.mark.once
@NAMES
def test_P01_a_training_for_cuda_gives_the_cpus_values_on_the_device(run, tmp_path, words):
    program = ported("training.py", tmp_path, words)
    cpu, device, half = run(program, "--device", "cpu"), run(program), run(program, "--half")
    assert device["losses"] == pytest.approx(cpu["losses"], rel=1e-4)
    assert device["losses"][-1] < device["losses"][0]
    assert device["sum"] == pytest.approx(cpu["sum"], rel=1e-4)
    assert (cpu["device"], device["device"]) == ("cpu", "mydevice:0")
    assert (device["loaded"], device["dtypes"]) == (["mydevice"], ["torch.float32"])
    assert device["peak"] > 0
    assert len(device["places"]) > 1
    assert device["places"] == list(range(len(device["places"])))
    assert half["dtypes"] == ["torch.float16"]  # autocast's own, as on CUDA
    assert half["losses"] == pytest.approx(cpu["losses"], rel=2e-2)
    assert half["losses"] != device["losses"]


@pytest.mark.long_after_first
@pytest.mark.once
@NAMES
def test_P01_a_process_group_and_a_profile_for_cuda_are_the_devices(run, tmp_path, words):
    facts = run(ported("ranks.py", tmp_path, words), tmp_path / "store")
    assert facts["sum"] == 15
    assert facts["doubled"] == [0, 2, 4, 6, 8, 10]
    assert (facts["dtype"], facts["device"]) == ("torch.float32", "mydevice:0")
    assert facts["backend"] == "mydeviceccl"
    assert facts["time"] > 0
    assert facts["rows"] > 4


@pytest.mark.usefixtures("backend_package")
def test_P02_every_name_that_is_written_is_one_of_torchs():
    """The tables against the torch and the device module that are installed."""
    cuda, accelerator = torch.cuda, torch.accelerator
    for old, new in names.ACCELERATOR.items():
        assert hasattr(cuda, old)
        assert hasattr(accelerator, new)
        parameters = list(inspect.signature(getattr(accelerator, new)).parameters.values())
        assert len(parameters) == len(inspect.signature(getattr(cuda, old)).parameters), old
        assert not [one for one in parameters if one.kind is one.KEYWORD_ONLY], old
    assert [new for new in names.TORCH.values() if not hasattr(torch, new)] == []
    assert [name for name in names.AMP if not hasattr(torch.amp, name)] == []
    unsupported = names.unsupported()
    public = [name for name in cuda.__all__ if name not in unsupported and name not in ("amp", *names.SUBMODULES)]
    assert [name for name in public if not hasattr(torch.mydevice, name) and name not in names.TORCH] == []
    event = FunctionEventAvg()
    assert [new for new in names.PROFILE_NAMES.values() if not hasattr(event, new)] == []
