"""A program on the device and by Triton's interpreter, each in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import torch

from random_kernels.programs import Program
from random_kernels.reference import Library

_SECONDS = 600
"""In which a program ends."""


def serve(device: str, folder: Path) -> None:
    """Run the programs whose numbers standard input has, and save what each wrote or why it failed."""
    for line in sys.stdin:
        number = int(line)
        facts = torch.load(folder / f"facts-{number}")
        spec = importlib.util.spec_from_file_location(f"program{number}", folder / f"program{number}.py")
        program = importlib.util.module_from_spec(spec)
        tensors = [tensor.to(device) for tensor in _inputs(facts)]
        try:
            spec.loader.exec_module(program)
            if device == "cpu":
                program.libdevice = Library()
            program.kernel[(2,)](*tensors, *facts["numbers"], M=facts["m"], N=facts["n"])
            found = [_comparable(tensor.cpu()) for tensor in tensors[5:]]
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[-600:]}"
        torch.save(found, folder / f"{device}-{number}")
        print("done", flush=True)


def _inputs(facts):
    """In the order of programs.ARGUMENTS."""
    m, n = facts["m"], facts["n"]
    generator = torch.Generator().manual_seed(facts["seed"])

    def whole(size, name):
        dtype = getattr(torch, name)
        low, high = (-4, 5) if dtype.is_floating_point else (0, 16) if not dtype.is_signed else (-16, 16)
        return torch.randint(low, high, (size,), generator=generator).to(dtype)

    sizes = [8 * m * n + 64, 8 * m * n + 64, m, n, m * n]
    inputs = [whole(size, dtype) for size, dtype in zip(sizes, facts["dtypes"], strict=True)]
    buffers = [whole(2 * m * n, dtype) for dtype in facts["dtypes"][:4]]
    out = torch.full((12 * m * n,), -7.0, dtype=torch.float64)
    sums = [torch.arange(48).to(dtype) for dtype in (torch.int32, torch.int64, torch.uint32)]
    reals = [torch.arange(-12, 12).to(dtype) for dtype in (torch.float32, torch.float64, torch.float16)]
    return [*inputs, *buffers, out, *sums, *reals]


def _comparable(tensor):
    """Torch compares few unsigned integers."""
    name = str(tensor.dtype).removeprefix("torch.")
    return tensor.view(getattr(torch, name[1:])) if name.startswith("uint") else tensor


class Worker:
    """A process that runs programs; another one where one has ended."""

    def __init__(self, folder: Path, device: str, prepare: str, environment: dict[str, str]) -> None:
        self.folder, self.device, self.prepare, self.environment = folder, device, prepare, environment
        self.process: subprocess.Popen[str] | None = None

    def run(self, number: int):
        """What a program wrote, or what happened instead."""
        if self.process is None:
            command = ["--prepare", self.prepare, "--serve", self.device, str(self.folder)]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "random_kernels", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, **self.environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        limit = threading.Timer(_SECONDS, self.process.kill)
        limit.start()
        try:
            self.process.stdin.write(f"{number}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            while answer and answer != "done\n":
                answer = self.process.stdout.readline()
        except OSError:
            answer = ""
        limit.cancel()
        if not answer:
            status, self.process = self.process.wait(), None
            return f"the process ended with {status}"
        return torch.load(self.folder / f"{self.device}-{number}")


class Comparison:
    """Of one interpreter and devices with options."""

    def __init__(self, folder: Path, options: list[str], device: str, prepare: str) -> None:
        self.folder, self.number = folder, 0
        self.interpreter = Worker(folder, "cpu", "builtins:dict", {"TRITON_INTERPRET": "1"})
        variable = f"{device.upper()}_OPTIONS"
        self.devices = {one: Worker(folder, device, prepare, {variable: one} if one else {}) for one in options}

    def difference(self, program: Program, text: str, options: str) -> str | None:
        """How a text of a program differs on the device; an error of the interpreter is raised."""
        self.number += 1
        (self.folder / f"program{self.number}.py").write_text(text)
        facts = dict(m=program.m, n=program.n, dtypes=[*program.dtypes, program.small], seed=program.seed)
        facts["numbers"] = (max(1, program.m - 1), max(1, program.n - 1), 2)
        torch.save(facts, self.folder / f"facts-{self.number}")
        expected = self.interpreter.run(self.number)
        if isinstance(expected, str):
            raise RuntimeError(expected)
        actual = self.devices[options].run(self.number)
        if isinstance(actual, str):
            return actual
        for number, (e, a) in enumerate(zip(expected, actual, strict=True), 5):
            tolerance = dict(rtol=1e-5, atol=1e-5) if e.is_floating_point() else {}
            try:
                torch.testing.assert_close(a, e, equal_nan=True, **tolerance)
            except AssertionError as error:
                return f"tensor {number}: {error}"
        return None

    def end(self) -> None:
        """End the processes."""
        for worker in (self.interpreter, *self.devices.values()):
            if worker.process is not None:
                worker.process.stdin.close()
                worker.process.wait()

    def reduced(self, program: Program, options: str, found: str) -> str:
        """The kernel without the lines that the finding does not need."""
        lines = program.text.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("def kernel(")) + 4
        size = max(1, (len(lines) - first) // 2)
        while size:
            at = first
            while at < len(lines):
                shorter = lines[:at] + lines[at + size :]
                try:
                    difference = self.difference(program, "\n".join(shorter) + "\n", options)
                except RuntimeError:
                    difference = None
                if difference is not None and _kind(difference) == _kind(found):
                    lines = shorter
                else:
                    at += size
            size //= 2
        return "\n".join(lines[first - 4 :])


def _kind(finding: str) -> str:
    return re.match(r"tensor|the process|\w+", finding).group()
