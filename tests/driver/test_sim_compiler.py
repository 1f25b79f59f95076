"""The compiler of the simulated device as a process: which one is found, how it ends, and what is left of it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from pathlib import Path

import pytest
from checker import Built, run
from interface import ABI, INTERNAL, INVALID_ARGUMENT, OK, UNSUPPORTED, Host, SetError, Table

KERNEL = """
typedef struct { i64 n; } Params;
BP_KERNEL(store, 1, Params, BP_GLOBAL i64* BP_RESTRICT out) { out[0] = bp_arg.n; }
"""


class Ext(Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        ("id", c_char_p),
        ("version", c_uint32),
        ("flags", c_uint32),
        ("self", c_void_p),
    ]


class Request(Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        *((name, c_char_p) for name in ("target", "source", "name", "options")),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]


class Result(Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        ("code", c_void_p),
        ("bytes", c_uint64),
        ("log", c_char_p),
        ("owner", c_void_p),
    ]


class Target(Structure):
    _fields_ = [("struct_size", c_uint64), ("target", c_char * 64), ("rest", c_char * 152)]


class Compiler(Structure):
    _fields_ = [
        ("head", Ext),
        ("id", CFUNCTYPE(c_int32, c_void_p, c_char_p, c_uint64)),
        ("target", CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(Target))),
        ("prelude", CFUNCTYPE(c_int32, c_void_p, c_char_p, POINTER(c_char_p))),
        ("compile", CFUNCTYPE(c_int32, c_void_p, POINTER(Request), POINTER(Result))),
        ("release", CFUNCTYPE(c_int32, c_void_p, POINTER(Result))),
    ]


class Sim:
    """An instance of the driver that is never opened: a compiler needs no device."""

    LAST_ERROR, QUERY_EXT = 8, 32  # slots of bp_driver

    def __init__(self, library: str, options: str = "") -> None:
        self.logged: list[str] = []
        self._log = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)(lambda _, __, text: self.logged.append(text.decode()))
        log = ctypes.cast(self._log, c_void_p)
        self.host = Host(ctypes.sizeof(Host), *ABI, None, log, SetError(), options.encode(), None)
        table = POINTER(Table)()
        assert ctypes.CDLL(library).bp_driver_get(byref(self.host), byref(table)) == OK
        self.self, slots = c_void_p(table.contents.self), table.contents.slots
        self.last_error = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_uint64)(slots[self.LAST_ERROR])
        query = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_uint32, POINTER(POINTER(Compiler)))(slots[self.QUERY_EXT])
        group = POINTER(Compiler)()
        assert query(self.self, b"bp.compiler", 1, byref(group)) == 0
        self.group = group.contents
        target = Target(ctypes.sizeof(Target))
        assert self.group.target(self.group.head.self, 0, byref(target)) == 0
        self.target = target.target
        prelude = c_char_p()
        assert self.group.prelude(self.group.head.self, self.target, byref(prelude)) == 0
        self.prelude = prelude.value or b""

    def id(self) -> str:
        text = ctypes.create_string_buffer(1024)
        assert self.group.id(self.group.head.self, text, 1024) == 0
        return text.value.decode()

    def compile(self, kernels: str = KERNEL, options: str = "") -> tuple[int, int, str]:
        """Status, bytes of code, and the log, or else the error."""
        source = b"#define BP_GROUP 1\n" + self.prelude + kernels.encode()
        request = Request(ctypes.sizeof(Request), self.target, source, b"test/unit", options.encode(), 0, 0)
        result = Result(ctypes.sizeof(Result))
        status = self.group.compile(self.group.head.self, byref(request), byref(result))
        if result.log is None:
            text = ctypes.create_string_buffer(1024)
            self.last_error(self.self, text, 1024)
            return status, 0, text.value.decode()
        found = status, result.bytes, result.log.decode()
        assert self.group.release(self.group.head.self, byref(result)) == 0
        return found


def script(path: Path, body: str) -> Path:
    """A program that stands in for a compiler, and says its version like one."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{path.name} 1.2.3" && exit 0\n{body}\n')
    path.chmod(0o755)
    return path


def real() -> str:
    return subprocess.run(["sh", "-c", "command -v ${CC:-cc}"], capture_output=True, text=True).stdout.strip()


def program_of(code: str) -> list[str]:
    """A process that has Sim."""
    imports = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_sim_compiler import Sim\n"
    return [sys.executable, "-c", imports + textwrap.dedent(code)]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where compilations put their files; nothing may be left there."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.delenv("CC", raising=False)
    yield folder
    assert list(folder.iterdir()) == []


def test_a_compiler_of_the_path_is_found(
    built: Built, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = str(built.sim)  # built by the compilers of the real path
    forward = f'exec {real()} "$@"'
    bin = tmp_path / "bin"
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(bin))
    expected = "no C compiler on this machine: looked for cc, gcc, clang; install one"
    status, size, text = Sim(sim).compile()
    assert (status, size) == (UNSUPPORTED, 0)
    assert expected in text
    assert "without a compiler" in Sim(sim).id()
    for name in ("clang", "gcc", "cc"):
        script(bin / name, f"PATH={path}; {forward}")
        assert f" {bin / name} [{name} 1.2.3]" in Sim(sim).id()
        status, size, text = Sim(sim).compile()
        assert (status, text) == (0, "")
        assert size > 1000
    monkeypatch.setenv("CC", "absent-cc -m64")
    assert f" {bin / 'cc'} [" in Sim(sim).id()
    mine = script(tmp_path / "own compilers" / "mine", f"PATH={path}; {forward}")
    for value in (str(mine), f"{script(bin / 'wrapped', f'shift; PATH={path}; {forward}')} argument"):
        monkeypatch.setenv("CC", value)
        assert value in Sim(sim).id()
        assert Sim(sim).compile()[0] == 0
    # The option goes first, and nothing else is taken in its place.
    assert str(bin / "gcc") in Sim(sim, "compiler=gcc").id()
    status, _, text = Sim(sim, "compiler=absent-cc").compile()
    assert status == UNSUPPORTED
    assert "looked for absent-cc (the option compiler)" in text


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("kill -9 $$", INTERNAL, "was ended by signal 9"),
        ("exit 3", INTERNAL, "failed with status 3"),
        ("echo left > $TMPDIR/left; mkdir $TMPDIR/more; echo x > $TMPDIR/more/x; kill -15 $$", INTERNAL, "signal 15"),
        ("echo 'fatal error: Killed signal terminated program cc1'; exit 1", INTERNAL, "terminated program"),
        ("echo 'test/unit:4:1: internal compiler error: oops'; exit 4", INTERNAL, "internal compiler error"),
        ("echo 'test/unit:4:1: error: no such word'; exit 1", INVALID_ARGUMENT, "test/unit:4:1: error: no such word"),
        ("exit 0", INTERNAL, "failed with status 0"),
    ],
)
def test_a_compiler_that_breaks(
    built: Built, temporary: Path, tmp_path: Path, body: str, status: int, said: str
) -> None:
    broken = script(tmp_path / "broken", body)
    found, size, text = Sim(str(built.sim), f"compiler={broken}").compile()
    assert (found, size) == (status, 0), text
    assert said in text


def test_a_kernel_on_which_the_vectorizer_breaks(built: Built, temporary: Path, tmp_path: Path) -> None:
    body = 'case "$*" in *-fno-tree-vectorize*) exec cc "$@";; *-shared*) echo internal compiler error; exit 4;; esac'
    compiler = script(tmp_path / "compiler", body + '; exec cc "$@"')
    status, size, text = Sim(str(built.sim), f"compiler={compiler}").compile()
    assert status == 0, text
    assert size > 0


def test_a_compiler_that_cannot_be_started(built: Built, temporary: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    status, _, text = Sim(str(built.sim), f"compiler={broken}").compile()
    assert status == UNSUPPORTED
    assert f"{broken} cannot be started: No such file or directory" in text


def test_a_temporary_folder_is_required(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    sim = Sim(str(built.sim))
    sim.id()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    status, _, text = sim.compile()
    assert status == INTERNAL
    assert "set TMPDIR" in text


def test_the_environment_of_the_compiler(built: Built, temporary: Path, tmp_path: Path) -> None:
    """Its language is that of the tests, what is preloaded here is not for it, and signals are as a shell has them."""
    seen = tmp_path / "seen"
    program = script(
        tmp_path / "curious",
        f'{{ env; cat /proc/$$/stat /proc/self/status; echo "$@"; }} > {seen}; exec {real()} "$@"',
    )
    code = f"""
        import signal
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        assert Sim({str(built.sim)!r}, "compiler={program}").compile(options=" -DONE  -DTWO=2 ")[0] == 0
    """
    preloaded = {"LD_PRELOAD": "libm.so.6", "LC_ALL": "C.UTF-8", "LANGUAGE": "de", "KEPT": "yes"}
    run(program_of(code), **preloaded)
    text = seen.read_text()
    variables = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0].isupper())
    assert variables["LC_ALL"] == "C"
    assert variables["KEPT"] == "yes"
    assert "LD_PRELOAD" not in variables
    assert "LANGUAGE" not in variables
    assert Path(variables["TMPDIR"]).parent == temporary
    assert " -DONE -DTWO=2 -o " in text
    (blocked,), (ignored,) = (re.findall(rf"{name}:\s(\w+)", text) for name in ("SigBlk", "SigIgn"))
    assert int(blocked, 16) & (1 << (signal.SIGTERM - 1)) == 0
    assert int(ignored, 16) & (1 << (signal.SIGINT - 1)) == 0
    pid, _, _, _, group = next(line for line in text.splitlines() if "(curious)" in line).split()[:5]
    assert pid == group


GCC = {os.path.realpath(path) for name in ("gcc-11", "gcc-12", "gcc-13", "gcc-14") if (path := shutil.which(name))}
GCC -= {os.path.realpath(shutil.which(real()) or real())}
COMPILERS = [
    real(),
    *(pytest.param(path, marks=pytest.mark.long) for path in sorted(GCC)),
    pytest.param("clang", marks=pytest.mark.system),
]


@pytest.mark.parametrize("path", COMPILERS)
def test_compilers_get_the_loops_of_kernels_right(built: Built, temporary: Path, tmp_path: Path, path: str) -> None:
    """Without the prelude's care GCC 12 does not. The first two sets of flags are GCC's alone."""
    words = tmp_path / "words"
    recorder = script(tmp_path / "recorder", f'echo "$@" >> {words}; exec {path} "$@"')
    sim = Sim(str(built.sim), f"compiler={recorder}")
    assert (sim.compile()[0], sim.compile()[0], sim.logged) == (0, 0, [])
    lines = words.read_text().splitlines()
    probes = [line for line in lines if "/probe " in line]
    assert len(probes) <= 3
    assert len(lines) == len(probes) + 2
    assert all(" -O3 " in line and "vectorize" not in line for line in lines)
    chosen = [word for word in probes[-1].split() if word.startswith(("-f", "-O"))]
    assert [[word for word in line.split() if word.startswith(("-f", "-O"))] for line in lines[-2:]] == [chosen] * 2
    is_gcc = "Free Software Foundation" in subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    assert ("-fno-tree-loop-distribute-patterns" in chosen) == is_gcc


PLACE = ("s/positive ^ hidden/positive - 1/", "a comparison is its place")
WITHOUT_VECTORS = "-O3 -fno-tree-vectorize"


@pytest.mark.parametrize(
    ("worst", "defect", "report"),
    [
        (WITHOUT_VECTORS, *PLACE),
        ("-O1", *PLACE),
        (WITHOUT_VECTORS, r"s/kept\[j\] = one/kept[j] = 0.0f/", "a local array before it is written"),
        (WITHOUT_VECTORS, "s/^int main(void) {/& *(volatile int*)8 = 0;/", "does not run to its end"),
    ],
)
def test_a_compiler_that_miscompiles_loops(
    built: Built, temporary: Path, tmp_path: Path, worst: str, defect: str, report: str
) -> None:
    words = tmp_path / "words"
    right = worst.split()[-1]
    body = f'echo "$@" >> {words}; case "$*" in *{right}*) exec {real()} "$@";; esac; sed "{defect}" | {real()} "$@"'
    sim = Sim(str(built.sim), f"compiler={script(tmp_path / 'wrong', body)}")
    assert sim.compile()[0] == 0
    assert f" {worst} " in words.read_text().splitlines()[-1]
    (text,) = sim.logged
    assert "wrong [wrong 1.2.3] miscompiles kernels at -O3 (" in text
    assert report in text
    assert f"they are compiled with {worst}, which is slower: name another compiler by CC or the option comp" in text
    assert sim.compile()[0] == 0
    assert len(sim.logged) == 1


def test_a_compiler_that_does_not_compile_the_probe(built: Built, temporary: Path, tmp_path: Path) -> None:
    """As a prelude that requires a target, whose kernels compile: nobody has tried the compiler's loops."""
    body = f'case "$*" in */probe*) echo "p.c:1:2: error: no target" >&2; exit 1;; esac; exec {real()} "$@"'
    sim = Sim(str(built.sim), f"compiler={script(tmp_path / 'partial', body)}")
    assert (sim.compile()[0], sim.compile()[0]) == (0, 0)
    (text,) = sim.logged
    assert "partial [partial 1.2.3] does not compile the probe of its loops (error: no target)" in text
    assert "compiled with -O3, which is unchecked: name another compiler by CC or the option compiler=" in text


def test_where_children_are_not_waited_for(built: Built, temporary: Path) -> None:
    code = f"""
        import json, signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        sim = Sim({str(built.sim)!r})
        print(json.dumps([sim.compile(), sim.compile("int f( {{ }}")]))
    """
    right, wrong = json.loads(run(program_of(code)).stdout)
    assert right[0] == 0
    assert right[1] > 1000
    assert wrong[0] == INVALID_ARGUMENT
    assert "error:" in wrong[2]


def test_signals_do_not_cut_the_wait_short(built: Built, temporary: Path, tmp_path: Path) -> None:
    slow = script(tmp_path / "slow", f'sleep 1; exec {real()} "$@"')
    code = f"""
        import signal
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        status, size, _ = Sim({str(built.sim)!r}, "compiler={slow}").compile()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(status, size > 1000, len(seen) > 0)
    """
    assert run(program_of(code)).stdout.split() == ["0", "True", "True"]


def test_ctrl_c_leaves_nothing_behind(built: Built, temporary: Path, tmp_path: Path) -> None:
    """Signals that arrive meanwhile are handled afterwards; the compilation is whole."""
    started = tmp_path / "started"
    slow = script(tmp_path / "slow", f'touch {started}; sleep 1; exec {real()} "$@"')
    code = f"""
        sim = Sim({str(built.sim)!r}, "compiler={slow}")
        try:
            print(sim.compile()[0], flush=True)
            print("went on", flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    child = subprocess.Popen(program_of(code), stdout=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(600):
        if started.exists():
            break
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does it
    out, _ = child.communicate(timeout=60)
    assert out.strip().endswith("interrupted")
    assert child.returncode == 0
