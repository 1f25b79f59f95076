"""The pytest plugin of Backplane: fixtures and a marker for tests of a backend. Imports no torch by itself.

A test that requires what the driver does not support is deselected, not skipped. The summary has a line with their
number and the missing capabilities; ``--backplane-list-deselected`` lists the tests, so that a project can check it.
"""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from torch_backplane import _backend
from torch_backplane._installed import only_backend

if TYPE_CHECKING:
    import subprocess

    import torch

_DESELECTED = pytest.StashKey[list[tuple[str, list[str]]]]()
_OF_WORKER = "backplane_deselected"  # the key in a pytest-xdist worker's output


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    group = parser.getgroup("backplane", "tests of a PyTorch backend")
    group.addoption(
        "--backplane-package",
        metavar="NAME",
        help="the backend's package; default: $BACKPLANE_PACKAGE, or the one that is installed",
    )
    group.addoption(
        "--backplane-list-deselected",
        action="store_true",
        help="print the tests that the loaded driver cannot run, with what it lacks",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the plugin's marker."""
    config.addinivalue_line(
        "markers",
        "requires(*capabilities): only on a driver that has them; see torch_backplane.testing.known_capabilities(). "
        '"kernel:add.Tensor": only where the kernel of aten::add.Tensor can run',
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the loaded driver cannot run."""
    required = {item: names for item in items if (names := _requirements(item))}
    if not required:
        return
    _import_backend(config)
    from torch_backplane.testing.capabilities import known_capabilities, lacks

    known = known_capabilities()
    for item, names in required.items():
        if unknown := [name for name in names if name not in known and not name.startswith("kernel:")]:
            raise pytest.UsageError(f"{item.nodeid} requires '{unknown[0]}'; known are {', '.join(known)}")
    every = {name: lacks(name) for names in required.values() for name in names}
    lacking = {item: [every[name] for name in names if every[name]] for item, names in required.items()}
    out = [item for item, names in lacking.items() if names]
    if not out:
        return
    config.stash[_DESELECTED] = sorted((item.nodeid, lacking[item]) for item in out)
    config.hook.pytest_deselected(items=out)
    gone = set(out)
    items[:] = [item for item in items if item not in gone]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass the deselected tests to the controller, if this is a worker of pytest-xdist."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_OF_WORKER] = session.config.stash.get(_DESELECTED, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the deselected tests from a worker of pytest-xdist: each collects the same tests."""
    if found := getattr(node, "workeroutput", {}).get(_OF_WORKER):
        node.config.stash[_DESELECTED] = [(nodeid, list(names)) for nodeid, names in found]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a line with the missing capabilities, or list the tests, if requested."""
    deselected = config.stash.get(_DESELECTED, [])
    if config.getoption("--backplane-list-deselected"):
        terminalreporter.section("deselected: the driver lacks")
        for nodeid, names in deselected:
            terminalreporter.write_line(f"{nodeid}: {', '.join(names)}")
    elif deselected:
        lacks = Counter(name for _, names in deselected for name in names)
        terminalreporter.write_line(
            f"{len(deselected)} deselected: the driver lacks "
            + ", ".join(f"{name} ({count})" for name, count in lacks.most_common())
            + "; --backplane-list-deselected names them"
        )


@pytest.fixture(scope="session")
def backend_package(request: pytest.FixtureRequest) -> ModuleType:
    """The backend's package, imported."""
    return _import_backend(request.config)


@pytest.fixture(scope="session")
def device(backend_package: ModuleType) -> torch.device:
    """The backend's device 0."""
    import torch

    return torch.device(_backend.device, 0)


@pytest.fixture(scope="session")
def device_module(backend_package: ModuleType) -> ModuleType:
    """``torch.<device>``."""
    import torch

    module: ModuleType = torch.get_device_module(_backend.device)
    return module


@pytest.fixture
def kernel_calls(backend_package: ModuleType) -> Callable[[str], int]:
    """``kernel_calls(op)``: how often the backend's own kernel of an operator was called."""
    from torch_backplane.testing.kernels import kernel_calls as count

    return count


@pytest.fixture
def run_in_process(backend_package: ModuleType) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_in_process(code, options=..., env=...)``: Python code in a separate process."""
    from torch_backplane.testing.process import run_in_process as run

    return run


@pytest.fixture(params=["unified", "discrete"])
def memory_kind(request: pytest.FixtureRequest) -> str:
    """Each memory kind of the simulator in turn, for ``run_in_process(code, options=f"kind={memory_kind}")``."""
    return str(request.param)


@pytest.fixture(params=["inline", "async"])
def stream_kind(request: pytest.FixtureRequest) -> str:
    """Each stream kind of the simulator in turn, for ``run_in_process(code, options=f"stream={stream_kind}")``."""
    return str(request.param)


def _requirements(item: pytest.Item) -> list[str]:
    return [name for mark in item.iter_markers("requires") for name in mark.args]


def _import_backend(config: pytest.Config) -> ModuleType:
    return importlib.import_module(config.getoption("--backplane-package") or installed_package())


def installed_package() -> str:
    """The backend's package: ``BACKPLANE_PACKAGE``, or the only one that is installed.

    Raises:
        pytest.UsageError: none, or several.
    """
    if named := os.environ.get("BACKPLANE_PACKAGE"):
        return named
    try:
        return only_backend("its package: --backplane-package NAME")
    except LookupError as error:
        raise pytest.UsageError(str(error)) from None
