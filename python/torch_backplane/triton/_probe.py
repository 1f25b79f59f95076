"""Run by ``torch-backplane doctor`` in a separate process, ``python -m <this> <package>``.

Prints a line of JSON: ``found`` and, if there is something to do about it, ``cure``.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys

from torch_backplane import _backend, compiler
from torch_backplane.triton import releases


def main(package: str) -> None:
    """Import the backend, and Triton if it is installed."""
    importlib.import_module(package)
    found, cure = _look()
    print(json.dumps({"found": found, "cure": cure}))


def _look() -> tuple[str, str]:
    install = f"pip install '{releases.requirement()}'"
    if not compiler.is_available("ttir") and (why := compiler.why_none()):
        return f"kernels of Triton do not run: {why}", ""
    if importlib.util.find_spec("triton") is None:
        return "not installed: kernels of Triton do not run", install
    try:
        import triton
        from triton import knobs
        from triton.backends import backends
    except Exception as why:  # whatever a broken install raises
        return f"import triton: {type(why).__name__}: {why}", f"{install} --force-reinstall --no-deps"
    version = triton.__version__
    if releases.refusal(version):
        return f"{version}: torch-backplane reads what Triton {releases.SUPPORTED} write", install
    ours = [name for name, one in backends.items() if one.driver.__module__ == "torch_backplane.triton.driver"]
    if not ours:
        if os.environ.get("TRITON_BACKENDS_IN_TREE") == "1":
            return f"{version}: TRITON_BACKENDS_IN_TREE=1 hides {_backend.device}", "unset TRITON_BACKENDS_IN_TREE"
        return f"{version}: no entry point names {_backend.device}", "reinstall the backend's package"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return f"{version}: kernels are interpreted, as TRITON_INTERPRET says", ""
    return _choice(version, {name: bool(one.driver.is_active()) for name, one in backends.items()}, knobs.cache.dir)


def _choice(version: str, active: dict[str, bool], folder: str) -> tuple[str, str]:
    name, variable = _backend.device, "TRITON_DEFAULT_BACKEND"
    chosen = os.environ.get(variable) if releases.has_default_backend(version) else None
    if chosen and chosen != name:
        return f"{version}: kernels are compiled for {chosen}, as {variable} says", f"{variable}={name}"
    others = [other for other, is_active in active.items() if is_active and other != name]
    if not chosen and others:
        found = f"{version}: several backends are active, {', '.join([name, *others])}, and Triton refuses to choose"
        if releases.has_default_backend(version):
            return found, f"{variable}={name}"
        return found, f'triton.runtime.driver.set_active(triton.backends.backends["{name}"].driver())'
    return f"{version}: kernels are compiled for {compiler.target().name}, texts in {folder}", ""


if __name__ == "__main__":
    main(sys.argv[1])
