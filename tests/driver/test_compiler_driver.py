"""The driver of examples/compiler_driver: tidy C, the contract, a wrong word, and a machine without a compiler."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checker import ROOT, Built, check, run
from test_check_driver import NO_SUCH_WORDS, listed, only

EXAMPLE = ROOT / "examples" / "compiler_driver"
FAMILIES = ("compiler", "module", "dialect")


def build(example: Path, folder: Path) -> Path:
    """As a vendor's project would, and with every warning an error."""
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-shared", "-fPIC"]
    include = f"-I{ROOT / 'include'}"
    sources = [str(example / name) for name in ("compiler_driver.c", "compiler.c")]
    out = folder / "libcompiler_driver.so"
    run([*shlex.split(os.environ.get("CC", "cc")), *strict, include, *sources, "-o", str(out), "-ldl"])
    return out


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(EXAMPLE, tmp_path_factory.mktemp("compiler_driver"))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where compilations put their files; nothing is left there. A name with a space is as good as any."""
    folder = tmp_path / "temporary files"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def checks_of(built: Built, *families: str) -> set[str]:
    return {name for name in listed(built) if name.split(".")[0] in families}


@pytest.mark.long
def test_the_contract(built: Built, driver: Path) -> None:
    report = check(built, driver, "--options", "devices=2,emulate.stream=async")
    assert (report.code, report.failed, report.left_out) == (0, {}, {}), report.out
    assert checks_of(built, *FAMILIES) - report.passed == NO_SUCH_WORDS | {"dialect.rows", "dialect.vectors"}


def test_compiling_loading_and_groups(built: Built, driver: Path) -> None:
    report = check(built, driver, *only("compiler.*", "module.load", "module.fault", "dialect.groups"))
    assert (report.code, report.failed, report.left_out, report.not_offered) == (0, {}, {}, {}), report.out


@pytest.fixture
def with_prelude(tmp_path: Path) -> Callable[[str], Path]:
    """The driver with another prelude."""

    def change(text: str) -> Path:
        for name in ("compiler_driver", "minimal_driver"):
            shutil.copytree(ROOT / "examples" / name, tmp_path / "examples" / name)
        example = tmp_path / "examples" / "compiler_driver"
        (example / "prelude.h").write_text(text)
        return build(example, tmp_path)

    return change


PRELUDE = (EXAMPLE / "prelude.h").read_text()


def test_a_wrong_word_is_named(built: Built, with_prelude: Callable[[str], Path]) -> None:
    assert PRELUDE.count("F32(rint),") == 1
    driver = with_prelude(PRELUDE.replace("F32(rint),", '"#define bp_rint __builtin_roundf",'))
    report = check(built, driver, "--only", "dialect.floats")
    assert set(report.failed) == {"dialect.floats"}, report.out
    assert report.failed["dialect.floats"].startswith("bp_rint")


def test_a_language_without_a_trap(built: Built, with_prelude: Callable[[str], Path]) -> None:
    driver = with_prelude("".join(line for line in PRELUDE.splitlines(keepends=True) if "BP_ASSERT" not in line))
    report = check(built, driver, *only("module.fault", "dialect.assertions"))
    assert (report.passed, report.not_offered) == (
        {"dialect.assertions"},
        {"module.fault": "not offered: the prelude defines no BP_ASSERT"},
    ), report.out


@pytest.mark.parametrize(("variable", "looked_for"), [("PATH", "cc"), ("CC", "/no/such/cc -m64")])
def test_a_machine_without_a_compiler(
    built: Built, driver: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, variable: str, looked_for: str
) -> None:
    """What needs none is checked; what would run a kernel is not run, and reported."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv(variable, str(temporary) if variable == "PATH" else looked_for)
    report = check(built, driver, *only(*(f"{family}.*" for family in FAMILIES)))
    assert (report.code, report.failed) == (3, {}), report.out
    assert report.passed == {f"compiler.{name}" for name in ("id", "target", "list", "prelude", "invalid")}
    expected = f"compile: {looked_for}: No such file or directory. Install a C compiler, or name it by CC"
    assert set(report.left_out.values()) == {expected}
    assert [line for line in report.out.splitlines() if "Not run at all" in line] == [
        f"  Not run at all: {family} ({expected})." for family in ("module", "dialect")
    ]
