"""Reads the surface of a torch: this environment's, another's, or one in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from backplane_tools.drift import Surface, record
from backplane_tools.drift.cpp import dispatch_stubs, virtual_functions
from backplane_tools.drift.uses import cpp_classes, cpp_headers, python_files, python_uses


def look(where: Path | None = None, more_operators: frozenset[str] = frozenset()) -> Surface:
    """Return what a torch has of the names that the SDK uses. Loads no backend.

    Args:
        where: an interpreter, an environment's folder, or a folder with torch in it that this Python can import; None
            for this Python's torch.
        more_operators: names to look for beside those that the record has.

    Raises:
        FileNotFoundError: there is neither an interpreter nor a torch.
        RuntimeError: torch cannot be imported there.
    """
    python, folder = _interpreter(where)
    uses = python_uses(path.read_text(encoding="utf-8") for path in python_files())
    asked = {
        "folder": folder,
        "names": sorted(uses.names),
        "attributes": sorted(uses.attributes - uses.names),
        "operators": sorted(record.operators() | more_operators),
    }
    done = subprocess.run(
        [python, "-W", "ignore", str(Path(__file__).with_name("probe.py"))],
        input=json.dumps(asked),
        env=_environment(where),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise RuntimeError(f"{where or python}: torch cannot be looked at: {last[0]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    include = Path(answer["folder"]) / "include"
    roots = (include, include / "torch/csrc/api/include", include / "kineto")
    headers = {name: "there" for name in cpp_headers() if any((root / name).is_file() for root in roots)}
    texts = {
        "python": answer["python"],
        "classes": virtual_functions(include, cpp_classes()),
        "headers": headers,
        "operators": answer["operators"],
        "stubs": dict.fromkeys(dispatch_stubs(include), "there"),
    }
    return Surface(answer["version"], texts, answer["unknown"])


def _environment(where: Path | None) -> dict[str, str]:
    """Return variables by which no backend is loaded, and another environment uses its packages alone."""
    ours = ("PYTHONPATH", "PYTHONHOME") if where is not None else ()
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def _interpreter(where: Path | None) -> tuple[str, str | None]:
    """Return a Python, and the folder that comes first on its path."""
    if where is None:
        return sys.executable, None
    if where.is_file() and os.access(where, os.X_OK):
        return str(where.absolute()), None
    if (python := where / "bin" / "python").exists():
        return str(python.absolute()), None
    folder = where.parent if (where / "version.py").is_file() else where
    if (folder / "torch" / "version.py").is_file():
        return sys.executable, str(folder.absolute())
    raise FileNotFoundError(f"{where}: neither an interpreter, nor an environment, nor a folder with torch in it")


def registered_operators() -> frozenset[str]:
    """Return torch's own operators that the installed backend has kernels for; none without a backend."""
    import torch

    keys = ("", "Autograd", "Autocast", "Sparse", "Quantized", "NestedTensor")
    found: set[str] = set()
    for key in keys:
        found.update(torch._C._dispatch_get_registrations_for_dispatch_key(f"{key}PrivateUse1"))
    return frozenset(name for name in found if name.startswith("aten::"))  # torch registers c10d's itself
