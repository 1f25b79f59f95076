"""Kernels of Triton that this process has loaded, and the files of their texts and code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_backplane import compiler
from torch_backplane.triton import launch


@dataclass(frozen=True)
class Loaded:
    """One specialization of a user's function."""

    name: str
    place: str  # of the function, file:line; "" if Triton was given a text
    settings: str  # its constants and options: "BLOCK=64, num_warps=4"
    texts: list[str]  # files of Triton's cache: TTIR, then what it was lowered to
    code: str  # the file of the unit cache; "" without one


@dataclass(frozen=True)
class _Entry:
    name: str
    place: str
    settings: str
    source: str  # its name in Triton's cache
    hash: str


_entries: list[_Entry] = []


def add(source: Any, metadata: Any) -> None:
    """Note a kernel: the arguments are those of Triton's ``launcher_cls``."""
    function = getattr(getattr(source, "fn", None), "fn", None)
    code = getattr(function, "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
    names = list(source.signature)
    constants = {names[path[0]]: value for path, value in getattr(source, "constants", {}).items() if len(path) == 1}
    settings = {**constants, "num_warps": metadata.num_warps, "num_stages": metadata.num_stages}
    text = ", ".join(f"{name}={value}" for name, value in settings.items())
    _entries.append(_Entry(metadata.name, place, text, source.name[:150], metadata.hash))


def count() -> int:
    """How many were loaded so far."""
    return len(_entries)


def loaded(first: int = 0) -> list[Loaded]:
    """Those that were loaded, from the number ``first`` on. Its files may have been removed since."""
    return [_with_files(entry) for entry in _entries[first:]]


def _with_files(entry: _Entry) -> Loaded:
    from triton.runtime.cache import get_cache_manager

    from torch_backplane.triton.compiler import EXTENSION

    manager = get_cache_manager(entry.hash)
    group = manager.get_group(f"{entry.source}.json") or {}
    files = [file for kind in ("ttir", EXTENSION) for name, file in group.items() if name.endswith(f".{kind}")]
    code = ""
    if (folder := compiler.cache_dir()) and files and os.path.exists(files[-1]):
        kernel = launch.load(entry.name, Path(files[-1]).read_bytes()).kernel
        key, _ = kernel.code_for(compiler.target().name)
        code = str(folder / key[:2] / key)
    return Loaded(entry.name, entry.place, entry.settings, files, code if os.path.exists(code) else "")
