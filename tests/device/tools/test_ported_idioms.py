"""torch-backplane port: small programs with CUDA's idioms give the CPU's values; what they import is there."""

import importlib
import json
import os
import pkgutil
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from backplane_tools.port import Target, port_source
from backplane_tools.port.names import MODULES

PROGRAMS = Path(__file__).parents[1] / "cuda_programs"
TOLERANCES = {"checkpoint": 1e-4, "arguments": 1e-4, "streams": 0, "mixed": 2e-2}
NAMED = pytest.mark.parametrize(
    "named", [pytest.param(False, id="accelerator"), pytest.param(True, id="named", marks=pytest.mark.long)]
)


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
                names = {}
                exec(after, names)
                assert b"torch.cuda" not in after
                assert not isinstance(names["found"], ModuleType), after
                ran += 1
    assert bool(ran) == (module == "amp" or module in MODULES)
