"""Torch's own tests of a process group, made the device's, in a process that runs each that it is asked for.

They name CUDA and NCCL where they mean an accelerator and its backend: in calls, in lists of what a backend can do, in
conditions. So the text of the installed module is read with the device's names in their place, at the same lines. For
the device ``cpu`` they run as they are, over Gloo.

A process imports torch and these tests once, and opens no device; a child runs one test, and forks its ranks.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import unittest
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from backplane_tools.conformance.process import questions

_COMMON = "torch.testing._internal.common_distributed"
_TESTS = "torch.testing._internal.distributed.distributed_test"


def names() -> Iterator[str]:
    """The tests' names, read from the module's text: nothing is imported but torch."""
    text = _source(_TESTS).read_text(encoding="utf-8")
    of_base = text.partition("    class _DistTestBase:")[2]
    yield from sorted(set(re.findall(r"^        def (test_\w+)\(", of_base, re.MULTILINE)))


def translated(text: str, device: str) -> str:
    """The text of a module with the device in CUDA's place, and its backend in NCCL's; imports stay."""
    places = [
        (r"\btorch\.cuda\b", f"torch.{device}"),
        (r"\.cuda\(", f".{device}("),
        (r"([\"'])cuda(?=[\"':])", rf"\g<1>{device}"),
        (r"[\"']nccl[\"']", f'"{device}ccl"'),
        (r"\bdist\.Backend\.NCCL\b", f'"{device}ccl"'),
        (r"\b\w+\.is_nccl_available\(\)", "True"),
        (r"\bDeviceType\.CUDA\b", "DeviceType.PrivateUse1"),
        (r"\bTEST_CUDA\b(?!,$)", "True"),
    ]
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        if not re.match(r"\s*(import|from)\s", line):
            for pattern, replacement in places:
                line = re.sub(pattern, replacement, line)
            lines[i] = line
    return "".join(lines)


def _source(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"this torch has no {module}", name=module)
    return Path(spec.origin)


def _load(name: str, device: str) -> ModuleType:
    path = _source(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    text = translated(path.read_text(encoding="utf-8"), device)
    exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def _test_classes(device: str) -> list[type[unittest.TestCase]]:
    """The tests as classes whose ranks are forked: in NCCL's place, and in Gloo's."""
    import torch

    module: Any = torch.get_device_module(device)
    world = min(4, max(2, module.device_count()))
    os.environ.update(WORLD_SIZE=str(world), INIT_METHOD="env://")
    if device == "cpu":
        os.environ["BACKEND"] = "gloo"
        return [_forked(importlib.import_module(_TESTS))]
    common: Any = _load(_COMMON, device)
    anything: Callable[..., Any] = lambda *_: lambda test: test  # noqa: E731
    common.requires_nccl_version = anything
    os.environ["BACKEND"] = f"{device}ccl"
    in_place_of_nccl: Any = _load(_TESTS, device)
    os.environ["BACKEND"] = "gloo"  # what asks for it runs
    in_place_of_gloo: Any = _load(_TESTS, device)
    in_place_of_gloo.dist = _Renamed(in_place_of_gloo.dist, f"cpu:gloo,{device}:{device}ccl")
    in_place_of_gloo.create_collectives_object_test_list = _of_the_cpu(in_place_of_gloo)
    return [_forked(in_place_of_nccl), _forked(in_place_of_gloo, device)]


def _of_the_cpu(tests: Any) -> Callable[[], list[Any]]:
    """The tests' objects with tensors on the CPU: ranks compare them with those that they receive, on other devices."""
    import torch

    objects = tests.create_collectives_object_test_list

    def made() -> list[Any]:
        with torch.device("cpu"):
            return objects()

    return made


class _Renamed:
    """torch.distributed, whose groups of the backend ``gloo`` by default are of another one."""

    def __init__(self, torchs: Any, backend: str) -> None:
        self._torchs = torchs
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torchs, name)

    def init_process_group(self, *args: Any, **kwargs: Any) -> None:
        """The default group, by the other backend."""
        self._torchs.init_process_group(*args, **{**kwargs, "backend": self._backend})


def _forked(tests: Any, device: str | None = None) -> type[unittest.TestCase]:
    """The test class of a module; with a device, that is the default device of the tests."""
    import torch

    class Tests(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank: int, *args: Any, **kwargs: Any) -> None:
            sys.modules[_TESTS] = tests  # of the two, where pickle looks
            if device is not None:
                torch.set_default_device(f"{device}:{rank}")
            super()._run(rank, *args, **kwargs)

    return Tests


def _run(classes: list[type[unittest.TestCase]], name: str) -> tuple[str, str]:
    """By the first class that does not skip the test; if all do, the first one's answer."""
    answers = []
    for tests in classes:
        answers.append(_run_one(tests, name))
        if answers[-1][0] != "skip":
            return answers[-1]
    return answers[0]


def _run_one(tests: type[unittest.TestCase], name: str) -> tuple[str, str]:
    result = unittest.TestResult()
    if not hasattr(tests, name):
        return "skip", "torch has it for other platforms, or in several versions"
    tests(name).run(result)
    for failure in (*result.errors, *result.failures):
        return "fail", failure[1]
    for skipped in result.skipped:
        return "skip", skipped[1]
    return "pass", ""


def serve(pipe: Connection, device: str) -> None:
    """Run the tests that are asked by name; the answer is a status and a text."""
    classes = _test_classes(device)
    for name in questions(pipe):
        child = os.fork()
        if child == 0:
            pipe.send(_run(classes, name))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            pipe.send(("fail", f"the process of the test ended with {status}"))
