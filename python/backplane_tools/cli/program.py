"""Runs a program as its own main module, for commands that watch one."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path


def run_program(path: str | Path, args: Sequence[str]) -> None:
    """Run it with these arguments, beside the modules of its folder."""
    argv, first = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(path), *args], str(Path(path).resolve().parent)
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv, sys.path[0] = argv, first


def failed(run: Callable[[], None]) -> bool:
    """Run something to its end; whether it failed. What it did until then is still printed."""
    try:
        run()
    except SystemExit as end:
        return end.code not in (None, 0)
    except Exception:
        traceback.print_exc()
        return True
    return False
