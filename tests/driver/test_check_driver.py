"""The contract checker: sound drivers pass, and for every check there is a driver that makes it fail."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BROKEN = ROOT / "tests" / "driver" / "broken"

# load.symbol has no entry there: it takes a library without the symbol.
DEFECTS = sorted(
    name
    for source in BROKEN.glob("*.cpp")
    for name in re.findall(r'd\["(\w+\.\w+)"\]', source.read_text(encoding="utf-8"))
)


@dataclass(frozen=True)
class Built:
    """What the session compiled."""

    program: Path
    sim: Path
    minimal: Path
    minimal_cpp: Path
    broken: Path
    no_driver: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Compile the checker (as ``torch-backplane check-driver`` does) and the drivers, once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "check-driver"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        names = ("sim", "minimal", "minimal_cpp", "broken", "no_driver")
        result = Built(compile_checker(folder), *(folder / f"lib{name}.so" for name in names))
        if not result.broken.exists():
            compile_sdk_driver(result.sim, "sim")
            minimal = ROOT / "examples" / "minimal_driver" / "minimal_driver.c"
            compile_library(result.minimal, [minimal])
            compile_library(result.minimal_cpp, [minimal.with_suffix(".cpp")])
            empty = folder / "no_driver.cpp"
            empty.write_text("int unrelated = 0;\n")
            compile_library(result.no_driver, [empty])
            compile_library(result.broken, list(BROKEN.glob("*.cpp")))
    return result


def compile_checker(cache: Path) -> Path:
    code = "from torch_backplane.cli.check_driver import compiled_program; print(compiled_program())"
    return Path(run([sys.executable, "-c", code], XDG_CACHE_HOME=str(cache)).stdout.strip())


def compile_sdk_driver(out: Path, name: str) -> None:
    """Compile a driver of the SDK as one unit, like a build: the headers cost more than the code."""
    drivers = ROOT / "backend" / "drivers"
    unit = out.with_suffix(".cpp")
    unit.write_text(
        "".join(f'#include "{path}"\n' for part in ("common", name) for path in drivers.glob(f"{part}/*.cpp"))
    )
    compile_library(out, [unit])


def compile_library(out: Path, sources: list[Path]) -> None:
    include = ["-I", str(ROOT / "include"), "-I", str(ROOT / "backend")]
    flags = ["-O0", "-shared", "-fPIC", *include]
    if sources[0].suffix == ".c":
        compiler = [*shlex.split(os.environ.get("CC", "cc")), "-std=c11"]
    else:
        compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20"]
    run([*compiler, *flags, *map(str, sorted(sources)), "-o", str(out) + ".new", "-lpthread"])
    os.rename(str(out) + ".new", out)


def run(words: list[str], check: bool = True, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
        env={**os.environ, **env},
        timeout=300,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@dataclass(frozen=True)
class Report:
    """One run of the checker."""

    code: int
    out: str
    err: str
    passed: set[str]
    failed: dict[str, str]
    not_offered: dict[str, str]
    left_out: dict[str, str]  # not run, skipped, or failed as expected


def check(built: Built, driver: Path, *words: str) -> Report:
    junit = Path(os.environ["PYTEST_TMP"]) / "result.xml"
    junit.unlink(missing_ok=True)
    done = run([str(built.program), str(driver), f"--junit={junit}", *words], check=False)
    passed, failed, not_offered, left_out = set(), {}, {}, {}
    if junit.exists():
        for case in ElementTree.parse(junit).getroot().iter("testcase"):
            name = case.get("name") or ""
            assert case.get("classname") == name.split(".")[0]
            if (failure := case.find("failure")) is not None:
                failed[name] = f"{failure.get('message')}\n{failure.text}"
            elif (skipped := case.find("skipped")) is not None:
                why = skipped.get("message") or ""
                (not_offered if why.startswith("not offered: ") else left_out)[name] = why
            else:
                passed.add(name)
    return Report(done.returncode, done.stdout, done.stderr, passed, failed, not_offered, left_out)


@pytest.fixture(autouse=True)
def _own_junit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path))


def listed(built: Built) -> list[str]:
    return [line.split()[0] for line in run([str(built.program), "--list"]).stdout.splitlines()]


# ---- sound drivers

NOT_HELD = "could not be held: "


@pytest.mark.parametrize(
    ("kind", "stream"),
    [
        ("unified", "async"),
        ("discrete", "inline"),
        pytest.param("unified", "inline", marks=pytest.mark.long),
        pytest.param("discrete", "async", marks=pytest.mark.long),
    ],
)
def test_sim(built: Built, kind: str, stream: str) -> None:
    report = check(built, built.sim, "--options", f"kind={kind},stream={stream}")
    assert report.failed == {}, report.out
    expected = {"host_view.map", "host_view.flags", "host_view.invalid"} if kind == "discrete" else set()
    assert set(report.not_offered) == expected
    assert set(report.left_out.values()) == (
        {f"{NOT_HELD}host functions run inside enqueue"} if stream == "inline" else set()
    )
    # Inline streams keep nothing pending, and the family that looks at nothing else is told.
    assert report.code == (3 if stream == "inline" else 0)
    assert ("Not run at all: wait (could not be held: " in report.out) == (stream == "inline")
    assert len(report.passed) + len(report.not_offered) + len(report.left_out) == len(listed(built))


def test_sim_under_emulate(built: Built) -> None:
    """A shim over a complete driver changes nothing that the contract promises."""
    report = check(built, built.sim, "--shim", "emulate")
    assert (report.code, report.failed, report.not_offered, report.left_out) == (0, {}, {}, {}), report.out


@pytest.mark.parametrize(
    ("language", "stream"),
    [
        ("c", "async"),
        ("cpp", "inline"),
        pytest.param("c", "inline", marks=pytest.mark.long),
        pytest.param("cpp", "async", marks=pytest.mark.long),
    ],
)
def test_minimal_is_completed_by_emulate(built: Built, language: str, stream: str) -> None:
    driver = built.minimal if language == "c" else built.minimal_cpp
    report = check(built, driver, "--options", f"devices=2,emulate.stream={stream}")
    assert (report.code, report.failed) == (0, {}), report.out
    assert "emulate was added: the driver has no streams, events, pinned memory, fill" in report.out
    assert {"stream.order", "event.elapsed", "callback.once", "fill.patterns", "pinned.alloc"} <= report.passed
    # Without bp.host_exec pending work is a row of copies. What emulate's streams cannot do is not the driver's fault.
    pending = {
        "stream.query",
        "stream.wait",
        "event.wait_keeps",
        "wait.timeout",
        "wait.zero",
        "life.busy",
        "fault.events",
    }
    assert pending <= (set(report.not_offered) if stream == "inline" else report.passed)
    assert not {name for name in report.passed if name.startswith(("host_exec.", "peer.", "ipc."))}
    assert {"fault.sticky", "fault.streams", "fault.release", "fault.callbacks", "lost.sticky"} <= report.passed
    assert (NOT_HELD in "".join(report.not_offered.values())) == (stream == "inline")
    assert report.left_out == {}


def test_partial_driver_without_emulate(built: Built, tmp_path: Path) -> None:
    """Where the shim is not found, what the driver lacks is not offered, and the report says so."""
    program = shutil.copy(built.program, tmp_path / "program")
    driver = Path(shutil.copy(built.minimal, tmp_path / "libminimal.so"))
    report = check(Built(Path(program), *([driver] * 5)), driver)
    assert (report.code, report.failed) == (3, {}), report.out
    assert "Not run at all: fault (no shim named fault: libbackplane_fault.so is neither in" in report.out
    assert "Not run at all: lost (no shim named fault" in report.out
    assert "libbackplane_emulate.so, which would supply them, was not found" in report.out
    assert report.not_offered["stream.order"] == "not offered: no streams"
    assert {"memory.patterns", "copy.odd", "error.cut", "life.two"} <= report.passed


def test_no_device_is_no_pass(built: Built) -> None:
    report = check(built, built.sim, "--options", "devices=0")
    assert (report.code, report.failed) == (2, {})
    assert "The driver has no device" in report.out
    assert "memory.zero" in report.not_offered


# ---- devices of other kinds


def of_kind(built: Built, kind: str, *words: str, options: str = "") -> Report:
    return check(built, built.sim, "--shim", str(built.broken), "--options", f"{options}broken.defect={kind}", *words)


def only(*globs: str) -> list[str]:
    return [word for glob in globs for word in ("--only", glob)]


LOOKS_AT_PENDING_WORK = only("stream.*", "event.*", "callback.*", "wait.*", "copy.*", "fault.*", "life.busy")


def test_a_card_without_host_functions_is_held_by_copies(built: Built) -> None:
    """Beside more busy processes than there are processors: what runs does not depend on the machine's mood."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        report = of_kind(built, "card", *LOOKS_AT_PENDING_WORK)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert (report.code, report.failed, report.left_out) == (0, {}, {}), report.out
    assert report.not_offered == {"fault.skipped": "not offered: no bp.host_exec"}
    assert {"fault.sticky", "fault.streams", "fault.events", "fault.release", "fault.isolated"} <= report.passed


def test_a_slow_card_is_held_in_time(built: Built) -> None:
    report = of_kind(built, "slow_card", *only("wait.*", "stream.query", "event.wait_keeps"))
    assert (report.code, report.failed, report.left_out, len(report.passed)) == (0, {}, {}, 5), report.out


def test_a_card_that_is_too_fast_is_told(built: Built) -> None:
    """Nothing is said of its streams, and the exit status tells that a family did not run, until a reason is given."""
    words = only("wait.*", "stream.query", "stream.order")
    report = of_kind(built, "fast_card", *words)
    assert (report.code, report.failed, report.passed) == (3, {}, {"stream.order"}), report.out
    assert set(report.left_out) == {"wait.timeout", "wait.zero", "wait.in_time", "stream.query"}
    assert all(why.startswith(NOT_HELD) for why in report.left_out.values())
    assert "inline" not in report.out
    assert "1 passed, 0 failed, 0 not offered, 4 not run in " in report.out
    assert report.out.count("Not run at all: ") == report.out.count("Not run at all: wait (could not be held: ") == 1
    reasoned = of_kind(built, "fast_card", *words, "--skip", "wait.*=its copies take no time")
    assert (reasoned.code, reasoned.passed) == (0, {"stream.order"})
    assert reasoned.left_out["wait.zero"] == "skipped: its copies take no time"


@pytest.mark.parametrize(
    "name",
    """copy.ordered stream.query stream.wait stream.destroy_pending stream.device_synchronize event.recorded
    event.rerecorded event.wait_keeps event.elapsed_pending event.across_devices callback.pending wait.timeout wait.zero
    wait.in_time fault.sticky fault.streams fault.events fault.release fault.isolated fault.callbacks
    life.busy""".split(),
)
def test_a_cards_defect_is_found(built: Built, name: str) -> None:
    report = of_kind(built, f"{name}+card", "--only", name)
    assert (report.code, set(report.failed)) == (1, {name}), report.out
    assert not report.failed[name].startswith(("crashed", "hung", "the driver ended"))


def test_a_cards_call_that_waits_is_found(built: Built) -> None:
    report = of_kind(built, "waiting_record+card", "--only", "event.recorded")
    assert (report.code, set(report.failed)) == (1, {"event.recorded"}), report.out
    assert re.match(r"event_record\(.*\) returned only when the work before it", report.failed["event.recorded"])


def test_a_runtimes_own_threads_belong_to_the_process(built: Built) -> None:
    report = of_kind(built, "pool", "--only", "life.threads")
    assert (report.code, report.passed) == (0, {"life.threads"}), report.out


# ---- expected failures, and checks that are left out

BROKEN_ZERO = "broken.defect=memory.zero"


def test_an_expected_failure_is_shown_with_its_reason(built: Built, tmp_path: Path) -> None:
    words = ["--shim", str(built.broken), "--options", BROKEN_ZERO, *only("memory.zero", "memory.patterns", "ext.*")]
    words += ["--expect", "memory.zero=the firmware <1.2> rounds up", "--skip", "ext.*=no groups yet"]
    report = check(built, built.sim, *words)
    assert (report.code, report.failed, report.passed) == (0, {}, {"memory.patterns"}), report.out
    assert report.left_out["memory.zero"].startswith(
        "failed as expected (the firmware <1.2> rounds up): alloc(0, 0, 0, "
    )
    assert report.left_out["ext.unknown"] == "skipped: no groups yet"
    assert re.search(r"expected +memory\.zero .*\n +as expected: the firmware <1\.2> rounds up\n +alloc\(", report.out)
    assert re.search(r"skipped +ext\.unknown .* no groups yet\n", report.out)
    assert "1 passed, 0 failed, 0 not offered, 1 failed as expected, 2 skipped in " in report.out
    root = ElementTree.parse(tmp_path / "result.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("4", "0", "3")


def test_an_expected_failure_that_passes_is_told(built: Built, tmp_path: Path) -> None:
    report = check(built, built.sim, "--only", "memory.zero", "--expect", "memory.zero=it rounds up")
    assert (report.code, set(report.failed)) == (1, {"memory.zero"}), report.out
    assert "it passes, though it is expected to fail (it rounds up): drop its --expect" in report.failed["memory.zero"]
    assert "0 passed, 1 failed" in report.out
    assert ElementTree.parse(tmp_path / "result.xml").getroot().get("failures") == "1"


def test_what_is_skipped_is_not_run(built: Built) -> None:
    """The driver would end the process."""
    words = ["--shim", str(built.broken), "--options", "broken.defect=crash", *only("memory.zero")]
    report = check(built, built.sim, *words, "--skip", "memory.*=it hangs the board")
    assert (report.code, report.left_out) == (0, {"memory.zero": "skipped: it hangs the board"}), report.out


# ---- broken drivers


def test_every_check_has_a_defect(built: Built) -> None:
    assert sorted(listed(built)) == sorted([*DEFECTS, "load.symbol"])


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_found(built: Built, name: str) -> None:
    words = ["--shim", str(built.broken), "--only", name]
    report = check(built, built.sim, *words, "--options", f"broken.defect={name}")
    assert set(report.failed) == {name}, report.out
    assert report.code == (1 if "load." not in name or name in {"load.refusal", "load.instances"} else 2)
    assert "driver.h says: " in report.failed[name]
    assert not report.failed[name].startswith(("crashed", "hung", "the driver ended"))


def test_the_shim_itself_is_sound(built: Built) -> None:
    report = check(built, built.sim, "--shim", str(built.broken), "--options", "broken.defect=none")
    assert (report.code, report.failed, report.not_offered) == (0, {}, {}), report.out


@pytest.mark.parametrize(
    ("defect", "words", "text"),
    [
        ("crash", [], r"crashed: SIGSEGV; the last call was alloc\(0, 0, 0, 0x"),
        ("hang", ["--time-limit", "1"], r"hung after 1 s; the last call was alloc\(0, 0, 0, 0x"),
        ("throw", [], r"threw a C\+\+ exception: out of <cheese> & \"crackers\""),
        ("end", [], r"the driver ended the process; the last call was alloc\(0, 0, 0, 0x"),
    ],
)
def test_an_early_end_costs_one_row(built: Built, defect: str, words: list[str], text: str) -> None:
    only = ["--only", "memory.zero", "--only", "ext.*"]
    report = check(built, built.sim, "--shim", str(built.broken), "--options", f"broken.defect={defect}", *only, *words)
    assert (report.code, set(report.failed), report.passed) == (1, {"memory.zero"}, {"ext.unknown", "ext.heads"})
    assert re.search(text, report.failed["memory.zero"])
    assert re.search(text, re.sub(r"\s+", " ", report.out))


def test_failure_is_explained(built: Built) -> None:
    words = ["--shim", str(built.broken), "--options", "broken.defect=memory.zero", "--only", "memory.zero"]
    report = check(built, built.sim, *words)
    assert re.search(r"FAIL +memory\.zero .*\n +alloc\(0, 0, 0, 0x\w+\) gave address 0\n +driver\.h says: ", report.out)
    assert "0 passed, 1 failed, 0 not offered" in report.out


# ---- what cannot be loaded


def test_missing_symbol(built: Built) -> None:
    report = check(built, built.no_driver)
    assert (report.code, set(report.failed)) == (2, {"load.symbol"})
    assert "exports no symbol bp_driver_get. Define it with BP_EXPORT" in report.failed["load.symbol"]
    assert "nothing else was checked" in report.out


def test_no_shared_object(built: Built, tmp_path: Path) -> None:
    text = tmp_path / "driver.so"
    text.write_text("not a library")
    report = check(built, text)
    assert (report.code, set(report.failed)) == (2, {"load.symbol"})
    assert f"cannot open {text}" in report.failed["load.symbol"]


def test_refusal_gives_the_drivers_reason(built: Built) -> None:
    report = check(built, built.sim, "--options", "devises=2")
    assert (report.code, set(report.failed)) == (2, {"load.answer"})
    assert "unknown option 'devises'" in report.failed["load.answer"]


def test_other_abi_names_both(built: Built) -> None:
    report = check(built, built.sim, "--shim", str(built.broken), "--options", "broken.defect=load.abi")
    assert "driver ABI 0.9, needed is 0.2" in report.failed["load.abi"]


def test_incomplete_group_names_the_slot(built: Built) -> None:
    report = check(built, built.sim, "--shim", str(built.broken), "--options", "broken.defect=load.groups")
    assert "group events: slot event_query is missing" in report.failed["load.groups"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "no driver is given"),
        (["{sim}", "{sim}"], "more than one driver is given"),
        (["/no/such/driver.so"], "there is no file /no/such/driver.so"),
        (["{sim}", "--frobnicate"], "unknown option --frobnicate"),
        (["{sim}", "--options"], "--options needs a value"),
        (["{sim}", "--list=yes"], "--list takes no value"),
        (["{sim}", "--time-limit", "soon"], '--time-limit needs seconds, not "soon"'),
        (["{sim}", "--time-limit", "-1"], '--time-limit needs seconds, not "-1"'),
        (["{sim}", "--only", "memory.nothing"], "--only memory.nothing matches no check"),
        (["{sim}", "--expect", "memory.zero"], '--expect needs GLOB=WHY, not "memory.zero"'),
        (["{sim}", "--skip=memory.zero="], '--skip needs GLOB=WHY, not "memory.zero="'),
        (["{sim}", "--skip", "memory.nothing=why"], "--skip memory.nothing matches no check"),
        (["{sim}", "--shim", "nosuch"], "no shim named nosuch: libbackplane_nosuch.so is neither in"),
        (["{sim}", "--shim", "/no/such/shim.so"], "there is no shim /no/such/shim.so"),
        (["{sim}", "--options", "emulate.stream=async"], 'the options name a shim "emulate" that is not loaded'),
        (["{sim}", "--only", "load.symbol", "--junit", "/no/such/folder/x.xml"], "cannot write /no/such/folder/x.xml"),
    ],
)
def test_wrong_usage(built: Built, words: list[str], text: str) -> None:
    done = run([str(built.program), *(word.format(sim=built.sim) for word in words)], check=False)
    assert done.returncode == 2
    assert text in done.stderr


# ---- the report


def test_paths_are_relative_to_the_caller(built: Built) -> None:
    done = run([str(built.program), built.sim.name, "--only", "load.symbol"], cwd=built.sim.parent)
    assert str(built.sim.resolve()) in done.stdout


def test_junit_is_well_formed_whatever_the_text_holds(built: Built, tmp_path: Path) -> None:
    options = 'broken.defect=none,<a>&"b"=\x01\udc80'  # the sim refuses it and quotes it
    report = check(built, built.sim, "--shim", str(built.broken), "--options", options)
    assert set(report.failed) == {"load.answer"}
    root = ElementTree.parse(tmp_path / "result.xml").getroot()
    assert root.get("failures") == "1"
    assert next(root.iter("property")).get("value") == 'broken.defect=none,<a>&"b"=��'


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_on_a_terminal_only(built: Built, env: dict[str, str], coloured: bool) -> None:
    words = [str(built.program), str(built.sim), "--only", "load.symbol"]
    base = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    assert "\033[" not in subprocess.run(words, env=base | env, capture_output=True, text=True, check=True).stdout
    master, slave = pty.openpty()
    with subprocess.Popen(words, env=base | env, stdout=slave, stderr=slave) as process:
        os.close(slave)
        output = b"".join(read_until_closed(master))
    assert process.returncode == 0
    assert (b"\033[32mok" in output) == coloured
    assert (b"\033[" in output) == coloured


def read_until_closed(terminal: int) -> Iterator[bytes]:
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        while True:
            try:
                data = stream.read(4096)
            except OSError:  # Linux: the other side is closed
                return
            if not data:
                return
            yield data


# ---- torch-backplane check-driver


def cli(*words: str, check: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "torch_backplane.cli", "check-driver", *words], check=check, **env)


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
    words = [
        "lib.so",
        "--options",
        "a=1",
        "--shim",
        "x",
        "--shim",
        "y",
        "--only",
        "m.*",
        "--expect",
        "a.b=c d",
        "--skip",
        "e.*=f",
        "--junit",
        "f",
        "--time-limit",
        "5",
    ]
    done = cli(*words, PYTHONPATH=str(tmp_path))
    expected = (
        "--options=a=1 --shim=x --shim=y --only=m.* --expect=a.b=c d --skip=e.*=f --junit=f --time-limit=5.0 -- lib.so"
    )
    assert (done.returncode, done.stdout) == (1, f"aab_backend: {expected}\n")


def test_compiled_program_is_private_and_kept(built: Built) -> None:
    cache = built.program.parents[2]
    assert cache.name == "torch-backplane"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert [entry.name for entry in cache.iterdir()] == [built.program.parents[1].name]  # nothing half-built
    before = built.program.stat()
    assert compile_checker(cache.parent) == built.program
    assert built.program.stat().st_ino == before.st_ino
    assert built.program.stat().st_mtime_ns == before.st_mtime_ns


def compile_fails(tmp_path: Path, **env: str) -> str:
    code = "import click\nfrom torch_backplane.cli.check_driver import compiled_program\n"
    code += "try:\n    compiled_program()\nexcept click.ClickException as error:\n    print(error.message)\n"
    return run([sys.executable, "-c", code], **{"XDG_CACHE_HOME": str(tmp_path), **env}).stdout


def test_no_compiler(tmp_path: Path) -> None:
    assert "there is no g++ or clang++ to compile one" in compile_fails(tmp_path, CXX="", PATH=str(tmp_path))
    assert "CXX is 'no-such-compiler', which is not found" in compile_fails(tmp_path, CXX="no-such-compiler")


def test_failing_compiler_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'error: this compiler knows no C++20' >&2\nexit 1\n")
    compiler.chmod(0o755)
    text = compile_fails(tmp_path, CXX=str(compiler))
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
