"""How long a vendor waits for the compiler: the rendered template, built clean and after one edit.

A clean build is given as a ratio to the compilation of one file that includes <torch/library.h>, before and after: by
itself it depends more on the processor than on the project. What the library of portable kernels adds to it is given in
processor time, which the number of compilations at a time does not change.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from benchmarks.row import HOST, Result, Row


class Times(NamedTuple):
    """Seconds of commands: by the clock, and of all processors together."""

    clock: float
    processor: float


class Project:
    """A project rendered from the template with its own driver, in a temporary folder; built as `make dev` does.

    ``kernels`` is the answer to the template's question of that name; ``words`` go into the project's KERNELS.
    """

    def __init__(self, kernels: str, words: str = "") -> None:
        import backplane_sdk
        from backplane_tools.cli.new import render

        self.scratch = tempfile.TemporaryDirectory()
        self.folder = render({"driver": "minimal", "kernels": kernels}, Path(self.scratch.name))
        cmake = self.folder / "CMakeLists.txt"
        cmake.write_text(cmake.read_text().replace("KERNELS ${kernels}", f"KERNELS {words} ${{kernels}}"))
        self.build_folder = self.folder / "build"
        self.environment = os.environ | {"CCACHE_DISABLE": "1", "backplane_ROOT": str(backplane_sdk.cmake_dir())}

    def clean_build(self) -> Times:
        """Configures and builds everything."""
        shutil.rmtree(self.build_folder, ignore_errors=True)
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_INSTALL_PREFIX": self.build_folder / "editable",
            "Python_EXECUTABLE": sys.executable,
        }
        definitions = [f"-D{name}={value}" for name, value in settings.items()]
        return self._timed(
            ["cmake", "-S", self.folder, "-B", self.build_folder, "-G", "Ninja", *definitions], self._install()
        )

    def rebuild_after_editing(self, pattern: str) -> Times:
        """Until one edited file has reached the installed package."""
        (source,) = self.folder.glob(pattern)
        with source.open("a") as file:
            file.write(f"\n/* edited at {time.time_ns()} */\n")
        return self._timed(self._install())

    def one_file(self) -> Times:
        """A file that includes <torch/library.h> and nothing else."""
        from torch.utils.cpp_extension import include_paths

        source = Path(self.scratch.name) / "one_file.cpp"
        source.write_text("#include <torch/library.h>\n")
        command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-g0", "-fPIC", "-c", source, "-o", os.devnull]
        return self._timed([*command, *(word for path in include_paths() for word in ("-isystem", path))])

    def _install(self) -> list[object]:
        return ["cmake", "--build", self.build_folder, "--target", "install"]

    def _timed(self, *commands: list[object]) -> Times:
        start, used = time.perf_counter(), _processor_time()
        for command in commands:
            words = [str(word) for word in command]
            run = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                raise RuntimeError(f"{' '.join(words)} failed: {(run.stdout + run.stderr)[-2000:]}")
        return Times(time.perf_counter() - start, _processor_time() - used)


def _processor_time() -> float:
    """Of the commands that this process has waited for, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build_rows() -> list[Row]:
    """The rows of one project; its clean build comes first."""
    one, library, all_kernels = Project("add"), Project("add", "portable"), Project("portable")

    def clean(project: Project) -> Callable[[str], Result]:
        def measure(device: str) -> Result:
            before, seconds, after = project.one_file().clock, project.clean_build().clock, project.one_file().clock
            return Result(
                seconds / max(before, after), seconds / mean((before, after)), device=seconds, cpu=max(before, after)
            )

        return measure

    def edited(pattern: str) -> Callable[[str], Result]:
        def measure(device: str) -> Result:
            times = [one.rebuild_after_editing(pattern).clock for _ in range(3)]
            return Result(min(times), median(times), unit="s")

        return measure

    def share(device: str) -> Result:
        runs = [
            (library.clean_build().processor, one.clean_build().processor, one.one_file().processor) for _ in range(3)
        ]
        with_library, without, file = map(min, zip(*runs, strict=True))
        ratios = [(more - less) / unit for more, less, unit in runs]
        return Result((with_library - without) / file, median(ratios), device=with_library - without, cpu=file)

    return [
        Row("vendor project, clean build, one kernel", clean(one), budget=12, configurations=(HOST,)),
        Row("vendor project, clean build, the SDK's kernels", clean(all_kernels), budget=24, configurations=(HOST,)),
        Row("the portable kernels' share of it, processor time", share, budget=2.1, configurations=(HOST,)),
        Row("after editing the driver", edited("backend/driver/*.c"), budget=2, configurations=(HOST,)),
        Row("after editing a kernel", edited("backend/kernels/add.cpp"), budget=6, configurations=(HOST,)),
    ]
