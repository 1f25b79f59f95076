"""The contract checker: sound drivers pass, and for every check there is a driver that makes it fail."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from checker import BROKEN, HERE, Built, Report, check, run

# load.symbol has no entry there: it takes a library without the symbol.
DEFECTS = sorted(
    name
    for source in BROKEN.glob("*.cpp")
    for name in re.findall(r'd\["(\w+\.\w+)"\]', source.read_text(encoding="utf-8"))
)


def listed(built: Built) -> list[str]:
    return [line.split()[0] for line in run([str(built.program), "--list"]).stdout.splitlines()]


# ---- sound drivers

NOT_HELD = "could not be held: "
# Words that the simulated device's prelude has not; that of rows of halves needs an instruction of the processor.
NO_SUCH_WORDS = {"dialect.natives", "dialect.shuffle"}
if not re.search(r"^flags.*\bf16c\b.*\bavx2\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
    NO_SUCH_WORDS.add("dialect.rows")
# Of a device that takes the dialect alone.
NO_TTIR = {"ttir.compile", "ttir.wrong_source", "ttir.values"}
TTIR = f"languages=dialect+ttir,python={sys.executable},"


def crossed(names: str, *pairs: tuple[str, str]) -> pytest.MarkDecorator:
    """The first pair, and the others with both crossed, which only the long tests try."""
    (a, b), (c, d) = pairs
    return pytest.mark.parametrize(
        names, [(a, b), *(pytest.param(*pair, marks=pytest.mark.long) for pair in ((c, d), (a, d), (c, b)))]
    )


@crossed("kind, stream", ("unified", "async"), ("discrete", "inline"))
def test_sim(built: Built, kind: str, stream: str) -> None:
    report = check(built, built.sim, "--options", f"kind={kind},stream={stream}")
    assert report.failed == {}, report.out
    expected = {"host_view.map", "host_view.flags", "host_view.invalid"} if kind == "discrete" else set()
    assert set(report.not_offered) == expected | NO_SUCH_WORDS | NO_TTIR
    assert set(report.left_out.values()) == (
        {f"{NOT_HELD}host functions run inside enqueue"} if stream == "inline" else set()
    )
    # Inline streams keep nothing pending, and the family that checks nothing else is reported.
    assert report.code == (3 if stream == "inline" else 0)
    assert ("Not run at all: wait (could not be held: " in report.out) == (stream == "inline")
    assert len(report.passed) + len(report.not_offered) + len(report.left_out) == len(listed(built))
    assert ("Next: `torch-backplane conformance --suite compiled`" in report.out) == (report.code == 0)


@pytest.mark.long
def test_sim_under_emulate(built: Built) -> None:
    """A shim over a complete driver changes nothing that the contract promises."""
    report = check(built, built.sim, "--shim", "emulate")
    assert (report.code, report.failed, report.left_out) == (0, {}, {}), report.out
    assert set(report.not_offered) == NO_SUCH_WORDS | NO_TTIR


OF_STREAMS = ("stream", "event", "copy", "fill", "memory", "callback", "thread")
OF_GROUPS = ("wait", "load", "ext", "error", "device", "module", "host_exec", "graph", "peer", "collective")
LOCKED = "event.unrecorded=under its lock emulate hides bp.ipc, and yet takes the flag of its events"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["no_events", "one_call", "handles"])
def test_emulate_over_other_drivers(built: Built, kind: str) -> None:
    """Streams of the shim's, a lock around each call, and a driver of handles, whose memory_info fails on purpose."""
    families = OF_STREAMS if kind == "handles" else (*OF_STREAMS, *OF_GROUPS)
    words = only(*(f"{family}.*" for family in families))
    if kind == "handles":
        driver = built.unit("handles", [HERE / "handle_driver.cpp"])
        report = check(built, driver, "--options", "emulate.stream=async", *words)
    else:
        words += ["--shim", "emulate", "--shim", str(built.broken)]
        words += ["--expect", LOCKED] if kind == "one_call" else []
        report = check(built, built.sim, "--options", f"emulate.stream=async,broken.defect={kind}", *words)
    assert (report.code, report.failed) == (0, {}), report.out
    assert {"stream.order", "event.elapsed", "fill.patterns", "copy.async"} <= report.passed


@pytest.mark.long
@crossed("language, stream", ("c", "async"), ("cpp", "inline"))
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
    assert not {
        name for name in report.passed if name.startswith(("host_exec.", "peer.", "ipc.", "module.", "dialect."))
    }
    assert {"fault.sticky", "fault.streams", "fault.release", "fault.callbacks", "lost.sticky"} <= report.passed
    assert (NOT_HELD in "".join(report.not_offered.values())) == (stream == "inline")
    assert report.left_out == {}


def test_partial_driver_without_emulate(built: Built, tmp_path: Path) -> None:
    """Where the shim is not found, the missing groups are not offered, and the report says so."""
    copied = Built(tmp_path)
    copied.program = Path(shutil.copy(built.program, tmp_path / "program"))
    driver = Path(shutil.copy(built.minimal, tmp_path / "libminimal.so"))
    report = check(copied, driver)
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


@pytest.mark.long
def test_a_card_without_host_functions_is_held_by_copies(built: Built) -> None:
    """Beside more busy processes than there are processors: what runs does not depend on the machine's load."""
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


@pytest.mark.long
def test_a_card_without_callbacks_faults_at_once(built: Built) -> None:
    """The fault shim has no mark to put on its streams."""
    report = of_kind(built, "quiet_card", *only("fault.*", "lost.*"))
    assert (report.code, report.failed, report.left_out) == (0, {}, {}), report.out
    assert set(report.not_offered) == {"fault.skipped", "fault.callbacks"}


@pytest.mark.long
def test_a_slow_card_is_held_in_time(built: Built) -> None:
    report = of_kind(built, "slow_card", *only("wait.*", "stream.query", "event.wait_keeps"))
    assert (report.code, report.failed, report.left_out, len(report.passed)) == (0, {}, {}, 5), report.out


@pytest.mark.long
def test_a_card_that_is_too_fast_is_reported(built: Built) -> None:
    """No stream is judged, and the exit status says that a family did not run, until a reason is given."""
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


@pytest.mark.long_after_first
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


@pytest.mark.long
def test_a_cards_call_that_waits_is_found(built: Built) -> None:
    report = of_kind(built, "waiting_record+card", "--only", "event.recorded")
    assert (report.code, set(report.failed)) == (1, {"event.recorded"}), report.out
    assert re.match(r"event_record\(.*\) returned only when the work before it", report.failed["event.recorded"])


def test_a_runtimes_own_threads_belong_to_the_process(built: Built) -> None:
    report = of_kind(built, "pool", "--only", "life.threads")
    assert (report.code, report.passed) == (0, {"life.threads"}), report.out


# ---- kernels


@pytest.mark.long
@pytest.mark.parametrize("options", ["items=4", "items=64,order=up", "items=8,order=down,kind=discrete,stream=inline"])
def test_groups_of_many_items(built: Built, options: str) -> None:
    """The prelude has every optional word."""
    report = of_kind(built, "every_word", *only("module.*", "dialect.*"), options=f"{options},")
    assert (report.code, report.failed, report.not_offered) == (0, {}, {}), report.out
    assert set(report.left_out) <= ({"module.pending"} if "inline" in options else set())


def test_T17_a_compiler_of_ttir_alone(built: Built) -> None:
    """What needs no word of the dialect is held with a module of Triton, also through the shims."""
    options = TTIR.replace("dialect+", "") + "items=4"
    families = only("compiler.*", "ttir.*", "ext.*", "module.values", "dialect.groups")
    report = check(built, built.sim, *families, "--shim", "emulate", "--shim", "fault", "--options", options)
    assert (report.code, report.failed, report.left_out) == (0, {}, {}), report.out
    of_dialect = {"compiler.prelude", "compiler.wrong_source", "module.values", "dialect.groups"}
    assert set(report.not_offered) == of_dialect
    assert set(report.not_offered.values()) == {"not offered: the target does not support the dialect"}
    assert {"compiler.forked", "compiler.threads", "compiler.invalid", "compiler.compile", *NO_TTIR} <= report.passed


def test_no_compiler(built: Built) -> None:
    """What needs none is held; the rest is not run, and the report says which compiler was looked for."""
    families = only("compiler.*", "module.*", "dialect.*")
    report = check(built, built.sim, *families, "--options", "compiler=/no/such/cc")
    assert (report.code, report.failed) == (3, {}), report.out
    assert {"compiler.id", "compiler.target", "compiler.list", "compiler.prelude", "compiler.invalid"} == report.passed
    assert all("/no/such/cc" in why for why in report.left_out.values())
    assert report.out.count("Not run at all: ") == 2
    assert re.search("Not run at all: module .*/no/such/cc.*\n.*Not run at all: dialect .*/no/such/cc", report.out)


# ---- expected failures, and checks that are left out


def test_an_expected_failure_is_shown_with_its_reason(built: Built, tmp_path: Path) -> None:
    words = ["--expect", "memory.zero=the firmware <1.2> rounds up", "--skip", "ext.*=no groups yet"]
    report = of_kind(built, "memory.zero", *only("memory.zero", "memory.patterns", "ext.*"), *words)
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


def test_an_expected_failure_that_passes_is_reported(built: Built, tmp_path: Path) -> None:
    report = check(built, built.sim, "--only", "memory.zero", "--expect", "memory.zero=it rounds up")
    assert (report.code, set(report.failed)) == (1, {"memory.zero"}), report.out
    assert "it passes, though it is expected to fail (it rounds up): drop its --expect" in report.failed["memory.zero"]
    assert "0 passed, 1 failed" in report.out
    assert ElementTree.parse(tmp_path / "result.xml").getroot().get("failures") == "1"


def test_what_is_skipped_is_not_run(built: Built) -> None:
    """The driver would end the process."""
    report = of_kind(built, "crash", *only("memory.zero"), "--skip", "memory.*=it hangs the board")
    assert (report.code, report.left_out) == (0, {"memory.zero": "skipped: it hangs the board"}), report.out


# ---- broken drivers


def test_every_check_has_a_defect(built: Built) -> None:
    assert sorted(listed(built)) == sorted([*DEFECTS, "load.symbol"])


# One item in a group has nobody to wait for, nor to shuffle with.
NEEDS_ITEMS = {"dialect.local", "dialect.shuffle"}


# What a failure says, beside what driver.h says.
SAYS = {
    "load.abi": "driver ABI 0.9, needed is 0.2",
    "load.groups": "group events: slot event_query is missing",
    "dialect.integers": "i8",
    "dialect.floats": "bp_rint",
    "dialect.doubles": "bp_erf64",
    "dialect.natives": "bp_f32_to_bf16",
    "dialect.rows": "bp_f16_row_to_f32",
    "dialect.vectors": "BP_TRANSPOSE of 8 rows of u32, 2 deep, to a step of 24",
    "dialect.atomics": "BP_ATOMIC_ADD_F32",
    "dialect.assertions": "BP_ASSERT",
}
# Those that compile kernels take seconds; a part of them is enough for each run.
KERNELS = [name for name in DEFECTS if name.startswith(("compiler.", "module.", "dialect.", "ttir.", "graph.kernels"))]
SLOW = {name for i, name in enumerate(KERNELS) if i % 3}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in SLOW else []) for name in DEFECTS]
)
def test_defect_is_found(built: Built, name: str) -> None:
    options = "items=4," if name in NEEDS_ITEMS else TTIR if name.startswith("ttir.") else ""
    report = of_kind(built, name, "--only", name, options=options)
    assert set(report.failed) == {name}, report.out
    assert report.code == (1 if "load." not in name or name in {"load.refusal", "load.instances"} else 2)
    assert "driver.h says: " in report.failed[name]
    assert not report.failed[name].startswith(("crashed", "hung", "the driver ended"))
    assert SAYS.get(name, "") in report.failed[name]


@pytest.mark.parametrize(
    ("defect", "name", "says"),
    [
        ("odd_copies", "device.properties", "copy_alignment is 3, which is no power of two"),
        ("wide_copies", "device.properties", "copy_alignment 1073741824 is larger than alignment"),
        ("priorities", "device.properties", "is too wide"),
        ("null_pinned", "pinned.alloc", "host_alloc"),
        ("other_group", "ext.heads", 'its id says "bp.other"'),
        ("alloc_timeout", "memory.patterns", "alloc"),
        ("copy_timeout", "copy.kinds", "copy"),
        (
            "compiler.wrong_source",
            "compiler.threads",
            'the log of a wrong source is "the source is wrong", expected one with no_such_name_3',
        ),
        ("missing_word", "dialect.floats", 'bp_copysign: "bp_copysign(x, y)" does not compile: ... no_such_name'),
    ],
)
def test_a_failure_names_what_is_wrong(built: Built, defect: str, name: str, says: str) -> None:
    """What the core refuses, and what an error quotes."""
    report = of_kind(built, defect, "--only", name)
    assert set(report.failed) == {name}, report.out
    for part in says.split(" ... "):
        assert part in " ".join(report.failed[name].split())


@pytest.mark.long
def test_the_shim_itself_is_sound(built: Built) -> None:
    report = of_kind(built, "none")
    assert (report.code, report.failed, set(report.not_offered)) == (0, {}, NO_SUCH_WORDS | NO_TTIR), report.out


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
    report = of_kind(built, defect, *only("memory.zero", "ext.*"), *words)
    assert (report.code, set(report.failed), report.passed) == (1, {"memory.zero"}, {"ext.unknown", "ext.heads"})
    assert re.search(text, report.failed["memory.zero"])
    assert re.search(text, re.sub(r"\s+", " ", report.out))


def test_failure_is_explained(built: Built) -> None:
    report = of_kind(built, "memory.zero", "--only", "memory.zero")
    assert re.search(r"FAIL +memory\.zero .*\n +alloc\(0, 0, 0, 0x\w+\) gave address 0\n +driver\.h says: ", report.out)
    assert "0 passed, 1 failed, 0 not offered" in report.out


# ---- what cannot be loaded


def test_missing_symbol(built: Built) -> None:
    report = check(built, built.unit("no_driver", []))
    assert (report.code, set(report.failed)) == (2, {"load.symbol"})
    assert "it does not export bp_driver_get. Export it with BP_EXPORT" in report.failed["load.symbol"]
    assert "nothing else was checked" in report.out


def test_no_shared_object(built: Built, tmp_path: Path) -> None:
    text = tmp_path / "driver.so"
    text.write_text("not a library")
    report = check(built, text)
    assert (report.code, set(report.failed)) == (2, {"load.symbol"})
    assert f"{text}' cannot be opened" in report.failed["load.symbol"]


def test_refusal_gives_the_drivers_reason(built: Built) -> None:
    report = check(built, built.sim, "--options", "devises=2")
    assert (report.code, set(report.failed)) == (2, {"load.answer"})
    assert "unknown option 'devises'" in report.failed["load.answer"]


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
