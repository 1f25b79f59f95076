"""Compiled kernels: their policy, their target, and how many were compiled.

A driver with the groups ``bp.compiler`` and ``bp.module`` gives the device the SDK's portable kernels: each is
compiled when a program first needs it, for its dtypes and strides, and kept on disk. docs/compiler.md has the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from torch_backplane import _backend

Policy = Literal["wait", "background", "off", "strict"]
Language = Literal["dialect", "ttir"]


def policy() -> Policy:
    """What happens when a kernel is needed that is not compiled yet; see :func:`set_policy`."""
    return _backend.C.modules.policy()


def set_policy(policy: Policy) -> None:
    """Set the policy of the process, from the next operator on; ``<PREFIX>_KERNELS`` in the environment sets the first.

    ``wait``: the calling thread compiles it. ``background``: another thread does, and until then the operator is
    computed without it. ``off``: no compiled kernels. ``strict``: as ``wait``, and where the compiler fails the
    operator raises, instead of a warning and the next implementation. Any thread. Raises ValueError for another word.
    """
    _backend.C.modules.set_policy(policy)


@contextmanager
def using(chosen: Policy) -> Iterator[None]:
    """Set the policy for a block, in the whole process."""
    before = policy()
    set_policy(chosen)
    try:
        yield
    finally:
        set_policy(before)


def is_available(language: Language = "dialect") -> bool:
    """Whether the driver compiles and runs kernels of the SDK's dialect, or Triton's of TTIR. Opens the driver."""
    return _backend.C.modules.can_compile() if language == "dialect" else _backend.C.modules.can_compile_ttir()


def has_target() -> bool:
    """Whether the driver compiles kernels of either language, and :func:`target` has an answer. Opens the driver."""
    return is_available() or is_available("ttir")


@cache
def why_none() -> str:
    """Why the driver compiles no kernels of the dialect; "" if it does.

    Opens the driver. The first call compiles a kernel of one line, for a driver whose compiler may not be on this
    machine; it comes from the package, from the cache and into records as any other.
    """
    if not is_available():
        if is_available("ttir"):
            return "its driver compiles Triton's kernels alone (TTIR), not the SDK's dialect (docs/triton.md)"
        return "its driver compiles no kernels here (bp.compiler and bp.module; see torch_backplane.compiler)"
    text = """typedef struct { i64 site_; } Generated;
BP_KERNEL(generated, 1, Generated, BP_GLOBAL f32* BP_RESTRICT out) { out[0] = 0.0f; }
"""
    kernel = _backend.C.modules.generated_kernel("try_the_compiler", "", text, ["math.bpc"], 1, 1, 0, 1, False, [])
    try:
        kernel.prepare(0)
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return ""


@dataclass(frozen=True)
class Target:
    """What kernels are compiled for: ``bp_target_properties``, units as there."""

    name: str
    compiler: str  # its id
    dtypes: int
    fast_dtypes: int
    group_size: int
    max_group_size: int
    subgroup_size: int
    vector_bytes: int
    local_bytes: int
    registers: int
    max_grid: tuple[int, int, int]
    parameter_bytes: int
    atomics: int
    languages: tuple[Language, ...]
    features: tuple[str, ...]  # instructions that the SDK's kernels do not use: "integer dot products"


def target(device: int = -1) -> Target:
    """The target of a device, -1 the current one. Raises RuntimeError if the driver compiles none."""
    return Target(**_backend.C.modules.target(device))


def target_named(name: str) -> Target:
    """One of :func:`targets`. Raises RuntimeError for another name."""
    return Target(**_backend.C.modules.target_named(name))


def targets() -> list[str]:
    """The targets that the compiler can make, on a machine without the device too."""
    return _backend.C.modules.targets()


def composed(device: int = -1) -> list[str]:
    """What the target of a device does not support, and what is done instead. Raises RuntimeError as :func:`target`."""
    import torch

    from torch_backplane.inductor.dtypes import ATOMICS, FLOAT64

    its, out = target(device), []
    if not its.dtypes & FLOAT64:
        out.append("no float64: its operators run on the CPU")
    if its.group_size > 1 and not its.subgroup_size:
        out.append("no shuffles: Triton kernels exchange values through local memory")
    sums = (torch.int32, torch.float32, torch.int64, torch.float64)
    if slow := [str(dtype).removeprefix("torch.") for dtype in sums if not its.atomics & ATOMICS[dtype]]:
        out.append(f"no atomic additions of {', '.join(slow)}: sums into repeated places run in order")
    return out


@dataclass(frozen=True)
class Counts:
    """Units of this process."""

    compiled: int
    from_cache: int
    failed: int
    waiting: int  # for the background, or being compiled there


def counts() -> Counts:
    """What was compiled so far."""
    return Counts(**_backend.C.modules.counts())


def synchronize() -> None:
    """Wait until nothing is left to compile in the background."""
    _backend.C.modules.finish()


def why_not(unit: str) -> str:
    """Why the unit of that name (``exp[f32]``) failed in this process; "" if it did not."""
    return _backend.C.modules.why_not(unit)


def cache_dir() -> Path | None:
    """Where compiled units are kept; None if there is no cache, for :func:`why_no_cache`."""
    path, _ = _backend.C.modules.cache_folder()
    return Path(path) if path else None


def why_no_cache() -> str:
    """Why there is no cache; "" if there is one."""
    return _backend.C.modules.cache_folder()[1]


_RECORDED = {
    "name": "",
    "definitions": "",
    "files": [],
    "per_item": 1,
    "text": "",
    "triton": "",
    "num_warps": 0,
    "num_stages": 0,
}
"""Of a kernel in a record, with what it is in records without it."""


def save_record(path: Path | str) -> None:
    """Write which kernels this process asked for, as JSON, for :func:`precompile`.

    The file's contents are kept, so several programs can record into one. ``<PREFIX>_RECORD_KERNELS=FILE`` in the
    environment does this at the end of the process.
    """
    path = Path(path)
    kernels = {json.dumps(kernel) for kernel in _read_record(path)} if path.exists() else set()
    if has_target():
        host = target().group_size == 1
        for facts in _backend.C.modules.wanted():
            kernel = dict(zip(_RECORDED, facts, strict=True), host=host)
            kernels.add(json.dumps(kernel))
    rows = ",\n".join(sorted(kernels))
    path.write_text(f'{{"device": {json.dumps(_backend.device)}, "kernels": [\n{rows}\n]}}\n', encoding="utf-8")


def precompile(record: Path | str, targets: Sequence[str], out: Path | str) -> Iterator[tuple[str, str, str]]:
    """Compile the kernels of a record for other targets, without a device, into a folder for the package.

    As many at once as there are processors, if the driver's compiler allows it.

    Put the folder into the package as ``<package>/kernels``: it is looked up before the cache. Its kernels are valid
    for this compiler's id and options; others compile again.

    Args:
        record: the file of :func:`save_record`.
        targets: of :func:`targets`.
        out: the folder; existing kernels are kept.

    Yields:
        The target, the kernel's name, and "" or why the compiler failed.

    Raises:
        ValueError: the file is no record of this device, or of a device whose kind differs from a target's: items are
            cores on one, threads on the other.
        RuntimeError: no such target, no compiler, or the folder cannot be written.
    """
    kernels = _read_record(Path(record))
    for name in targets:
        host = target_named(name).group_size == 1
        if strange := [kernel["name"] for kernel in kernels if kernel["host"] != host]:
            raise ValueError(
                f"{record}: {strange[0]} was recorded on another kind of device than {name}; record on one of its kind"
            )
        calls = [
            (name, *(kernel.get(fact, default) for fact, default in _RECORDED.items()), str(out)) for kernel in kernels
        ]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            answers = threads.map(lambda call: _backend.C.modules.precompile(*call), calls)
            for kernel, why in zip(kernels, answers, strict=True):
                yield name, kernel["name"], why


def _read_record(path: Path) -> list[dict[str, Any]]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        device, kernels = record["device"], record["kernels"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no record of kernels: {error}") from error
    if device != _backend.device:
        raise ValueError(f"{path} is a record of the device {device}, not of {_backend.device}")
    return list(kernels)
