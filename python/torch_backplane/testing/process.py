"""Code in a new Python process: for what happens once per process, such as imports, drivers, options and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping

from torch_backplane import _backend


def run_in_process(
    code: str,
    *,
    options: str | None = None,
    env: Mapping[str, str | None] | None = None,
    device: str | None = None,
    check: bool = True,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a separate process.

    Args:
        code: the program; it is dedented.
        options: the driver's option string, such as ``"devices=4,kind=discrete"``: replaces ``<DEVICE>_OPTIONS``.
        env: environment variables to set, or to remove where the value is None.
        device: the device whose variables are meant; None is the loaded backend's.
        check: raise AssertionError, with what the program printed, if it fails.
        timeout: seconds.

    Returns:
        The finished process: ``returncode``, ``stdout``, ``stderr``.
    """
    full = {name: value for name, value in _environment(options, env, device).items() if value is not None}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=full, capture_output=True, text=True, timeout=timeout, check=False)
    return _checked(done, check)


def _environment(
    options: str | None, env: Mapping[str, str | None] | None, device: str | None
) -> dict[str, str | None]:
    """The process's variables; None where one is removed."""
    device = device or _backend.device
    if options is not None and not device:
        raise RuntimeError("which device? Import the backend's package first, or give device=")
    ours = {} if options is None else {f"{device.upper()}_OPTIONS": options}
    return {**os.environ, **ours, **(env or {})}


def _checked(done: subprocess.CompletedProcess[str], check: bool) -> subprocess.CompletedProcess[str]:
    if check and done.returncode != 0:
        raise AssertionError(f"the process ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done
