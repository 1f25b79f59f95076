"""Holds the include rules: arrows between the folders point one way, and torch's umbrella headers stay out.

Also run by ``make lint``, as a program.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# folder -> the folders that it may include, beside itself and the public headers; of backend/ where it is not said
_RUNTIME = {"torch", "runtime"}
_MEMORY = _RUNTIME | {"memory", "random"}
_TENSOR = _MEMORY | {"tensor"}
_DISPATCH = _TENSOR | {"fallback", "dispatch"}
_MODULES = _DISPATCH | {"modules"}
_UNIT = _MODULES | {"kernels/portable/unit"}
ARROWS = {
    "torch": set(),
    "torch/c10d_only/ATen": set(),
    "runtime": {"torch"},
    "memory": _RUNTIME,
    "random": _RUNTIME | {"memory"},
    "graph": _MEMORY,
    "host": _RUNTIME,
    "serialization": _RUNTIME,
    "tensor": _MEMORY,
    "fallback": _TENSOR,
    "dispatch": _DISPATCH,
    "modules": _RUNTIME,
    "inductor": _RUNTIME | {"memory", "modules", "graph"},
    "aten": _MODULES,
    "autocast": _DISPATCH,
    "kernels/cuda": set(),
    "kernels/portable/unit": _MODULES,
    "kernels/portable/pointwise": _UNIT,
    "kernels/portable/reduction": _UNIT,
    "kernels/portable/nn": _UNIT | {"kernels/portable/reduction"},
    "kernels/portable/index": _UNIT,
    "kernels/portable/sort": _UNIT | {"kernels/portable/reduction"},
    "kernels/portable/matrix": _UNIT,
    "kernels/portable/image": _UNIT | {"kernels/portable/matrix"},
    "kernels/portable/random": _UNIT,
    "distributed": _MEMORY,
    "profiler": _RUNTIME | {"modules"},
    "bindings": _DISPATCH | {"modules", "inductor", "aten", "autocast", "serialization", "host", "profiler", "graph"},
    "drivers/engine": set(),
    "drivers/cuda": {"drivers/engine"},
    "drivers/opencl": {"drivers/engine", "drivers/spirv"},
    "drivers/sim": {"drivers/engine"},
    "drivers/vulkan": {"drivers/engine", "drivers/spirv"},
    "drivers/spirv": set(),
    "drivers/shims": set(),
    "drivers/shims/emulate": {"drivers/engine", "drivers/shims"},
    "drivers/shims/fault": {"drivers/engine", "drivers/shims"},
    "drivers/shims/trace": {"drivers/shims"},
    "check_driver": set(),
}
# What the core is made of: not the kernels of a device, which see public headers alone.
CORE = {folder for folder in ARROWS if not folder.startswith(("drivers/", "check_driver", "kernels/cuda"))}
# public header -> the folder that implements it: for the core, including the one is including the other
IMPLEMENTED = {
    "torch_compat.h": "torch",
    "dtypes.h": "runtime",
    "kernel.h": "runtime",
    "driver_memory.h": "memory",
    "philox.h": "random",
    "random.h": "random",
    "convolution.h": "dispatch",
    "copy.h": "tensor",
    "host/tensor.h": "tensor",
    "host/elementwise.h": "host",
    "registration.h": "dispatch",
    "signature.h": "dispatch",
    "structured.h": "dispatch",
    "library.h": "dispatch",
    "autograd.h": "dispatch",
    "extend.h": "aten",
    "generated.h": "inductor",
}
# No torch below this line, and of our own headers the driver's alone.
DRIVER_SIDE = ("drivers/", "check_driver")
DRIVER_HEADER = re.compile(r"backplane/driver(\.h|/((vendor/)?[^/]+\.h|cxx/[^/]+\.hpp))$")
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
# Each costs every file that includes it 5 to 20 seconds.
BANNED = {"torch/extension.h", "torch/torch.h", "torch/all.h", "ATen/ATen.h", "ATen/Functions.h"}
# The folders compiled as a separate unit, without torch's largest headers: tensors, boxed values, the dispatcher.
TENSOR_FREE = {"runtime", "memory", "random", "graph"}
TENSORS = re.compile(
    r"^(torch/(csrc/|library\.h)|ATen/(ops/|record_function\.h|core/(Tensor|ivalue|stack)\.h|core/(boxing|dispatch)/))"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def includes(text: str) -> list[tuple[str, str]]:
    """The (bracket, name) of each include."""
    return INCLUDE.findall(text)


def folder_of(path: Path, root: Path) -> str | None:
    """The row of ARROWS to which a file belongs; None for what is no part of the core, the drivers or the checker."""
    folder = path.relative_to(root).parent
    if folder.parts[:1] in (("drivers",), ("check_driver",)):
        return folder.as_posix()
    return "/".join(folder.parts[1:]) if folder.parts[:1] == ("backend",) else None


def implemented(path: Path, root: Path) -> str | None:
    """The folder that implements a public header; None for the driver's and for what is no public header."""
    return IMPLEMENTED.get(path.relative_to(root).as_posix().removeprefix("include/backplane/"))


def resolve(bracket: str, name: str, file: Path, root: Path) -> Path | None:
    """The file of ours that an include names, as the compiler finds it."""
    places = [file.parent] if bracket == '"' else []
    for place in [*places, root / "backend", root / "include"]:
        if (place / name).is_file():
            return (place / name).resolve()
    return None


def problems_of(file: Path, root: Path) -> list[str]:
    """What is wrong with the includes of one file."""
    here = folder_of(file, root)
    said = f"{file.relative_to(root)}: includes"
    problems = []
    if here is not None and here not in ARROWS:
        return [f"{file.relative_to(root)}: {here} is not in the table of arrows; say what it may include."]
    driver_side = (here or "").startswith(DRIVER_SIDE) or DRIVER_HEADER.search(file.as_posix()) is not None
    for bracket, name in includes(file.read_text(encoding="utf-8")):
        if name in BANNED:
            problems.append(f"{said} {name}, which is banned: include the headers of what is used (ATen/ops/<op>.h).")
        if here in TENSOR_FREE and TENSORS.match(name):
            problems.append(f"{said} {name}; {here} is compiled without tensors: put it into aten.")
        if driver_side and TORCH.match(name):
            problems.append(f"{said} {name}, and the driver side of the line knows no torch.")
        found = resolve(bracket, name, file, root)
        if found is None:
            continue
        there = folder_of(found, root) or (implemented(found, root) if here in CORE else None)
        if there is None:
            if driver_side and not DRIVER_HEADER.search(found.as_posix()):
                problems.append(f"{said} {name}; of the public headers, the driver side sees driver.h alone.")
        elif here is None:
            if file.name != "extend.h" and "include" in file.parts:
                problems.append(f"{said} {name}, a header of the core that is not installed with the public ones.")
        elif there != here and there not in ARROWS[here]:
            allowed = ", ".join(sorted(ARROWS[here])) or "none"
            problems.append(f"{said} {name}: {here} may include of the other folders: {allowed}.")
    return problems


def sources(root: Path) -> list[Path]:
    """The C and C++ files that the rules are about."""
    tops = ["backend", "drivers", "check_driver", "include", "examples", "{{cookiecutter.package_name}}"]
    return sorted(
        file
        for top in tops
        for file in (root / top).rglob("*")
        if file.suffix in {".h", ".hpp", ".c", ".cpp"} and file.is_file()
    )


def test_every_file_keeps_the_rules() -> None:
    files = sources(ROOT)
    assert len(files) > 50
    assert not [problem for file in files for problem in problems_of(file, ROOT)]


def test_every_public_header_has_an_owner() -> None:
    public = ROOT / "include" / "backplane"
    headers = {
        path.relative_to(public).as_posix() for path in public.rglob("*.h") if not DRIVER_HEADER.search(str(path))
    }
    assert headers == set(IMPLEMENTED)


@pytest.mark.parametrize(
    ("path", "line", "text"),
    [
        ("backend/runtime/a.cpp", '#include "memory/pool.h"', "runtime may include"),
        ("backend/tensor/a.cpp", "#include <backplane/structured.h>", "tensor may include"),
        ("backend/memory/a.cpp", "#include <torch/extension.h>", "banned"),
        ("backend/memory/a.cpp", "#  include <ATen/ATen.h>", "banned"),
        ("backend/memory/a.cpp", "#include <ATen/core/Tensor.h>", "without tensors"),
        ("backend/runtime/a.cpp", "#include <ATen/record_function.h>", "without tensors"),
        ("drivers/sim/a.cpp", "#include <c10/core/Device.h>", "knows no torch"),
        ("drivers/sim/a.cpp", "#include <backplane/kernel.h>", "driver.h alone"),
        ("drivers/sim/a.cpp", '#include "../shims/emulate/b.h"', "drivers/sim may include"),
        ("check_driver/a.cpp", '#include "runtime/device.h"', "check_driver may include"),
        ("backend/newcomer/a.cpp", "", "table of arrows"),
        ("include/backplane/kernel.h", '#include "memory/pool.h"', "not installed"),
        ("include/backplane/driver/cxx/driver.hpp", "#include <ATen/core/Tensor.h>", "knows no torch"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, path: str, line: str, text: str) -> None:
    for name in ("backend/memory/pool.h", "backend/runtime/device.h", "drivers/shims/emulate/b.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("include/backplane/kernel.h", "include/backplane/structured.h", path):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / path).write_text(line + "\n")
    (problem,) = problems_of(tmp_path / path, tmp_path)
    assert text in problem


def test_what_is_allowed_is_not_a_problem(tmp_path: Path) -> None:
    for name in ("backend/memory/pool.h", "drivers/engine/c.h", "include/backplane/driver.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    aten, sim = tmp_path / "backend/aten/a.cpp", tmp_path / "drivers/sim/a.cpp"
    for file in (aten, sim):
        file.parent.mkdir(parents=True, exist_ok=True)
    aten.write_text('#include <ATen/ops/add.h>\n#include "memory/pool.h"\n#include <vector>\n')
    sim.write_text('#include <backplane/driver.h>\n#include "../engine/c.h"\n')
    assert problems_of(aten, tmp_path) == problems_of(sim, tmp_path) == []


if __name__ == "__main__":
    found = [problem for file in sources(ROOT) for problem in problems_of(file, ROOT)]
    print("\n".join(found) if found else f"includes: {len(sources(ROOT))} files keep the rules")
    sys.exit(bool(found))
