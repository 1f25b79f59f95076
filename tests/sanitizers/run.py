"""The core under a sanitizer: ``make asan``, ``make tsan``, or ``python tests/sanitizers/run.py address|thread``.

Builds the reference backend into ``build/<sanitizer>`` and runs the C++ tests of its library on each kind of the
simulated device, and a part of the Python tests with that build in place of the installed one. CONTRIBUTING.md says
what that covers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
RUNTIMES = {"address": ["libasan.so", "libubsan.so", "libstdc++.so"], "thread": ["libtsan.so", "libstdc++.so"]}
# What users get, but for these: NDEBUG is torch's build's, and frames are needed for stacks.
FLAGS = ["-O1", "-g1", "-DNDEBUG", "-fno-omit-frame-pointer"]
KINDS = ["kind=unified,stream=async", "kind=discrete,stream=async", "kind=discrete,stream=inline"]
PROGRAMS = {"memory_test": [], "allocator_stress": ["3000", "4"], "streams_stress": ["1000", "4"]}
# The tests of memory, streams, copies, processes and the fallback: where C++ does what Python cannot see. Not of the
# stream sanitizer, whose programs race on purpose.
PYTHON_TESTS = (
    "allocator block_copies copy dlpack events fallback_layouts fallback_memory memory_history multiprocessing random "
    "resize serialization streams stream_semantics views"
)

# A shell does not start under ThreadSanitizer.
WITHOUT_RUNTIME = """#!{python} -S
import os, sys
del os.environ["LD_PRELOAD"]
os.execvp("{command}", ["{command}", *sys.argv[1:]])
"""


def sh(*words: object) -> str:
    """Run a command, and end with its output if it fails; what it printed."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(sanitizer: str, folder: Path, *targets: str) -> None:
    """The reference backend, in ``folder``."""
    flags = " ".join([*FLAGS, f"-fsanitize={SANITIZERS[sanitizer]}"])
    settings = {
        "BACKPLANE_DEVICE": "mydevice",
        "CMAKE_BUILD_TYPE": "Sanitize",  # a name for which CMake has no flags
        "CMAKE_C_FLAGS": flags,
        "CMAKE_CXX_FLAGS": flags,
        "Python_EXECUTABLE": sys.executable,
    }
    sh("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *[f"-D{key}={value}" for key, value in settings.items()])
    sh("cmake", "--build", folder, *(["--target", *targets] if targets else []))


def compile_program(program: str, sanitizer: str, folder: Path) -> Path:
    """A program of tests/device/cpp, linked to the library in ``folder``."""
    torch = Path(sysconfig.get_path("platlib")) / "torch"
    library, output = folder / "mydevice" / "lib", folder / program
    words = [os.environ.get("CXX", "c++"), "-std=c++20", *FLAGS, f"-fsanitize={SANITIZERS[sanitizer]}"]
    words += ["-isystem", torch / "include", "-I", ROOT / "include", "-I", ROOT / "backend"]
    words += [ROOT / "tests/device/cpp" / f"{program}.cpp", "-o", output, "-pthread"]
    for where, names in ((library, ["mydevice"]), (torch / "lib", ["torch_cpu", "c10"])):
        words += ["-L", where, f"-Wl,-rpath,{where}", "-Wl,--no-as-needed", *[f"-l{name}" for name in names]]
    sh(*words)
    return output


# The first report ends a program; leaks are reported at its end.
OPTIONS = {
    "ASAN_OPTIONS": "halt_on_error=1:detect_leaks=1:malloc_context_size=16",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:atexit_sleep_ms=0:ignore_noninstrumented_modules=1",
    "OMP_NUM_THREADS": "1",
}


def environment(kind: str = "", reports: Path | None = None) -> dict[str, str]:
    """The caller's, without its device, with the sanitizers' options; reports go to files of that name."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("MYDEVICE_")}
    ours |= OPTIONS
    if reports:
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            ours[name] += f":log_path={reports}"
    return {**ours, **({"MYDEVICE_OPTIONS": kind} if kind else {})}


def run_program(program: Path, kind: str) -> subprocess.CompletedProcess[str]:
    """One program on one kind of device."""
    words = [str(program), *PROGRAMS[program.name]]
    if program.name == "memory_test" and "inline" in kind:
        words += ["--without", "held_"]
    return subprocess.run(words, env=environment(kind), capture_output=True, text=True, timeout=300, check=False)


def make_environment(folder: Path) -> Path:
    """A Python that imports the build in place of what is installed; everything else is the installed environment's."""
    package = ROOT / "build/demo/mydevice/python/mydevice"  # as rendered by `make dev`
    for source in package.glob("*.py"):
        shutil.copy(source, folder / "mydevice")
    venv = folder / "venv"
    sh(sys.executable, "-m", "venv", "--without-pip", venv)
    (site,) = venv.glob("lib/python*/site-packages")
    # Paths alone: the import hooks of editable installs in the last one do not run.
    (site / "here.pth").write_text("\n".join(map(str, [folder, ROOT / "python", sysconfig.get_path("purelib")])))
    return venv / "bin" / "python"


def run_python(sanitizer: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The Python tests, in a process that has loaded the sanitizer first."""
    python = make_environment(folder)
    compiler = os.environ.get("CXX", "c++")
    runtimes = [sh(compiler, f"-print-file-name={name}").strip() for name in RUNTIMES[sanitizer]]
    reports = folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    env = environment(reports=reports / "report")
    # Leaks are for the programs: Python, torch and the compilers leave their own behind when they end.
    env |= {"LD_PRELOAD": ":".join(runtimes), "PYTHONMALLOC": "malloc"}
    env["ASAN_OPTIONS"] += ":detect_leaks=0"
    for variable, default in (("CC", "cc"), ("CXX", "c++")):  # compilers leak, too
        wrapper = folder / variable
        wrapper.write_text(WITHOUT_RUNTIME.format(python=sys.executable, command=os.environ.get(variable, default)))
        wrapper.chmod(0o755)
        env[variable] = str(wrapper)
    shelf = ROOT / "tests" / "device"
    tests = [path for name in PYTHON_TESTS.split() for path in shelf.rglob(f"test_{name}.py")]
    # Ctrl-C is to come while the device is busy: a matter of time. Forked children of a process with threads start
    # threads there, which ThreadSanitizer cannot follow.
    without = ["ctrl_c", *(["killed", "workers"] if sanitizer == "thread" else [])]
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    words += ["-k", " and ".join(f"not {name}" for name in without)]
    done = subprocess.run([*map(str, words)], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    for report in sorted(reports.iterdir()):  # of the processes that tests start, too
        done.returncode = done.returncode or 1
        done.stderr += report.read_text()
    return done


def main() -> int:
    """Build, run everything, and say what came of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sanitizer", choices=SANITIZERS)
    sanitizer = parser.parse_args().sanitizer
    folder = ROOT / "build" / sanitizer
    build(sanitizer, folder)
    failed = False

    def report(title: str, done: subprocess.CompletedProcess[str], seconds: float) -> None:
        nonlocal failed
        failed = failed or done.returncode != 0
        last = (done.stdout.strip().splitlines() or [""])[-1]
        print(f"{'FAIL' if done.returncode else 'ok  '} {title}: {last} ({seconds:.0f} s)", flush=True)
        if done.returncode:
            print(done.stdout + done.stderr)

    for name in PROGRAMS:
        program = compile_program(name, sanitizer, folder)
        for kind in KINDS:
            start = time.monotonic()
            report(f"{name}, {kind}", run_program(program, kind), time.monotonic() - start)
    start = time.monotonic()
    report("Python tests", run_python(sanitizer, folder), time.monotonic() - start)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
