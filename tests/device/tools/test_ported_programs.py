"""torch-backplane port: programs written for CUDA run on the device after it, with the CPU's values."""

import importlib
import inspect
import json
import os
import pkgutil
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner
from torch.autograd.profiler_util import FunctionEventAvg

from backplane_tools.cli.port import port
from backplane_tools.port import Target, names, port_source

PROGRAMS = Path(__file__).parents[1] / "cuda_programs"
TOLERANCES = {"checkpoint": 1e-4, "arguments": 1e-4, "mixed": 2e-2}
NAMED = pytest.mark.parametrize(
    "named", [pytest.param(False, id="accelerator"), pytest.param(True, id="named", marks=pytest.mark.long)]
)


@pytest.fixture
def run(run_in_process):
    """``run(program, *options)``: the facts that a program prints."""

    def start(program: Path, *options: object) -> dict:
        words = [*map(str, (program, *options))]
        code = f"import runpy, sys\nsys.argv = {words}\nrunpy.run_path(sys.argv[0], run_name='__main__')"
        return json.loads(run_in_process(code).stdout.strip().splitlines()[-1])

    return start


def ported(program: str, folder: Path, named: bool) -> Path:
    words = ["--device", "mydevice"] if named else []
    path = Path(shutil.copy(PROGRAMS / program, folder))
    result = CliRunner().invoke(port, [str(path), "--write", *words])
    assert result.exit_code == 0, result.output
    assert CliRunner().invoke(port, [str(path), *words]).exit_code == 0  # nothing is left
    return path


@pytest.mark.once
@NAMED
def test_P01_a_training_for_cuda_gives_the_cpus_values_on_the_device(run, tmp_path, named):
    program = ported("training.py", tmp_path, named)
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
@NAMED
def test_P01_a_process_group_and_a_profile_for_cuda_are_the_devices(run, tmp_path, named):
    facts = run(ported("ranks.py", tmp_path, named), tmp_path / "store")
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


@pytest.fixture(scope="module")
def without_device():
    """The results of the programs, before the port, without a device."""
    code = "import json, runpy, sys; print(json.dumps([runpy.run_path(path)['result'] for path in sys.argv[1:]]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *(PROGRAMS / f"{name}.py" for name in TOLERANCES)],
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(TOLERANCES, json.loads(done.stdout), strict=True))


def complete(source: bytes, target: Target) -> bytes | None:
    """A program after the port; None if a place is left."""
    ported = port_source(source, target)
    assert not ported.problem
    return None if any(place.new is None for place in ported.places) else ported.content


@NAMED
@pytest.mark.parametrize("program", TOLERANCES)
def test_a_ported_program_gives_the_cpus_values_on_the_device(program, named, without_device, name, tmp_path):
    path = tmp_path / f"{program}.py"
    path.write_bytes(complete((PROGRAMS / path.name).read_bytes(), Target(name if named else None)))
    result = runpy.run_path(str(path))["result"]
    assert result == pytest.approx(without_device[program], rel=TOLERANCES[program])


def names_below_cuda() -> dict[str, list[str]]:
    """The public names of each public module of torch.cuda."""
    found = {}
    for module in (info.name for info in pkgutil.iter_modules(torch.cuda.__path__) if info.name[0] != "_"):
        values = vars(importlib.import_module(f"torch.cuda.{module}"))
        own = [name for name, value in values.items() if "torch." in str(getattr(value, "__module__", ""))]
        found[module] = [name for name in values.get("__all__") or own if name[0] != "_"]
    return {module: public for module, public in found.items() if public}


@NAMED
@pytest.mark.parametrize(("module", "public"), names_below_cuda().items())
def test_a_name_imported_from_a_module_of_cuda_is_the_devices_or_left(module, public, named, name):
    ran = 0
    for own in public:
        for source in (
            f"from torch.cuda.{module} import {own} as found",
            f"from torch.cuda import {module} as there\nfound = there.{own}",
            f"import torch.cuda.{module} as there\nfound = there.{own}",
            f"import torch.cuda.{module}\nfound = torch.cuda.{module}.{own}",
            f"from torch import cuda\nfound = cuda.{module}.{own}",
            f"found = torch.cuda.{module}.{own}",
        ):
            after = complete(f"import torch\n{source}".encode(), Target(name if named else None))
            if after is not None:
                scope = {}
                exec(after, scope)
                assert b"torch.cuda" not in after
                assert not isinstance(scope["found"], ModuleType), after
                ran += 1
    assert bool(ran) == (module == "amp" or module in names.MODULES)
