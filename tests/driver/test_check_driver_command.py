"""``torch-backplane check-driver``: which checker it runs, and how it compiles one."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from checker import compile_checker, run


def cli(*words: str, check: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "backplane_tools", "check-driver", *words], check=check, **env)


def fake_backend(folder: Path, package: str, build_info: bool) -> None:
    """Install a package that claims torch.backends, with a checker that prints its arguments."""
    program = folder / package / "bin" / "backplane-check-driver"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "{package}: $@"\nexit 1\n')
    program.chmod(0o755)
    (folder / package / "__init__.py").write_text("raise ImportError('the command must not import a backend')\n")
    if build_info:
        (folder / package / "_build_info.py").write_text("")
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[torch.backends]\n{package} = {package}:_autoload\n")


def test_command_runs_an_installed_backends_checker(tmp_path: Path) -> None:
    fake_backend(tmp_path, "aaa_stranger", build_info=False)
    fake_backend(tmp_path, "aab_backend", build_info=True)
    words = "lib.so --options a=1 --shim x --shim y --only m.* --skip e.*=f --junit f --time-limit 5 --expect".split()
    words.append("a.b=c d")
    done = cli(*words, PYTHONPATH=str(tmp_path))
    expected = (
        "--options=a=1 --shim=x --shim=y --only=m.* --skip=e.*=f --junit=f --time-limit=5.0 --expect=a.b=c d -- lib.so"
    )
    assert (done.returncode, done.stdout) == (1, f"aab_backend: {expected}\n")


def compiler(folder: Path, body: str) -> str:
    """A script in a compiler's place."""
    path = folder / "g++"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


WRITES_A_PROGRAM = """while [ $# -gt 0 ]; do
  [ "$1" = -o ] && echo 'echo listed' > "$2" && chmod 755 "$2"
  shift
done"""


@pytest.mark.long_after_first
@pytest.mark.parametrize("real", [False, True])
def test_compiled_program_is_private_and_kept(tmp_path: Path, real: bool) -> None:
    env = {} if real else {"CXX": compiler(tmp_path, WRITES_A_PROGRAM)}
    program = compile_checker(tmp_path, **env)
    assert run(["sh", "-c", f"{program} --list"]).stdout
    cache = program.parents[2]
    assert cache == tmp_path / "torch-backplane"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert [entry.name for entry in cache.iterdir()] == [program.parents[1].name]  # nothing half-built
    before = program.stat()
    assert compile_checker(tmp_path, **env) == program
    assert (program.stat().st_ino, program.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def compile_fails(tmp_path: Path, **env: str) -> str:
    code = "import click\nfrom backplane_tools.cli.check_driver import compiled_program\n"
    code += "try:\n    compiled_program()\nexcept click.ClickException as error:\n    print(error.message)\n"
    return run([sys.executable, "-c", code], **{"XDG_CACHE_HOME": str(tmp_path), **env}).stdout


def test_no_compiler(tmp_path: Path) -> None:
    assert "there is no g++ or clang++ to compile one" in compile_fails(tmp_path, CXX="", PATH=str(tmp_path))
    assert "CXX is 'no-such-compiler', which is not found" in compile_fails(tmp_path, CXX="no-such-compiler")


def test_failing_compiler_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    text = compile_fails(tmp_path, CXX=compiler(tmp_path, "echo 'error: this compiler knows no C++20' >&2\nexit 1"))
    assert "error: this compiler knows no C++20" in text
    assert "set CXX" in text
    assert list((tmp_path / "torch-backplane").iterdir()) == []


def test_cache_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torch-backplane").mkdir()
    (tmp_path / "torch-backplane").chmod(0o777)
    assert f"others can write to {tmp_path / 'torch-backplane'}" in compile_fails(tmp_path)


def test_command_needs_a_path() -> None:
    done = cli()
    assert done.returncode == 2
    assert "Missing argument 'PATH'" in done.stderr
