"""Runs cases in this process: what a worker process does, and ``--jobs 0`` for a debugger."""

from __future__ import annotations

import importlib
import platform
import random
import time
import traceback
import unittest
import warnings
from collections.abc import Sequence
from typing import Any

from backplane_tools.conformance import suites
from backplane_tools.conformance.case import Case, Outcome, Suite
from backplane_tools.conformance.errors import ConformanceError, missing_extra
from backplane_tools.conformance.record import Row
from torch_backplane._installed import installed_backends, only_backend

try:
    import torch
except ModuleNotFoundError as missing:
    raise ConformanceError(f"torch does not import ({missing}): install it, or run torch-backplane doctor") from missing

from torch_backplane import _backend
from torch_backplane.testing.compare import describe

_LONGEST_TRACE = 20_000


class Runner:
    """A device, and the suites that have been used on it.

    Args:
        device: ``"mydevice"``, ``"mydevice:1"``, or None for the only backend that is installed.
        package: the backend's package; None finds it by the device's name among the entry points ``torch.backends``.
        where: suite -> ``module:Class``.

    Raises:
        ConformanceError: there is no such device.
    """

    def __init__(self, device: str | None, package: str | None, where: dict[str, str]) -> None:
        self.where = where
        self.package = package or _package_of(device)
        self.device = _open(device, self.package)
        self._suites: dict[str, Suite] = {}

    def about(self) -> dict[str, Any]:
        """What is tested, and with what: the head of the reports."""
        type_ = torch.device(self.device).type
        about: dict[str, Any] = {
            "device": self.device,
            "device_name": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "backend": _distribution(self.package),
            "driver": "",
            "options": "",
            "capabilities": [],
        }
        if _backend.loaded() and type_ == _backend.device:
            from torch_backplane import driver

            info = driver.info()
            about.update(driver=info.path, options=info.options, capabilities=sorted(info.capabilities))
        if type_ != "cpu":
            about["device_name"] = str(torch.get_device_module(type_).get_device_name(self.device))
        return about

    def suite(self, name: str) -> Suite:
        """The suite, imported at its first use."""
        if name not in self._suites:
            try:
                self._suites[name] = suites.load(name, self.where[name])
            except ModuleNotFoundError as error:
                place = self.where[name]
                raise missing_extra(error, f"the suite {name}") or ConformanceError(
                    f"the suite {name} cannot be imported as {place}: {error}"
                ) from error
            except AttributeError as error:
                raise ConformanceError(f"the suite {name} cannot be made as {self.where[name]}: {error}") from error
        return self._suites[name]

    def cases(self, name: str, dtypes: Sequence[str] | None) -> list[Case]:
        """A suite's cases."""
        for dtype in dtypes or ():
            if not isinstance(getattr(torch, dtype, None), torch.dtype):
                raise ConformanceError(f"there is no dtype {dtype!r} in torch; name one such as float32 or bfloat16")
        suite = self.suite(name)
        try:
            return list(suite.cases(dtypes))
        except ModuleNotFoundError as error:
            raise missing_extra(error, f"the suite {name}") or error from error

    def prepare(self, name: str) -> None:
        """Import a suite, which is not the time of its first case."""
        self.suite(name)

    def run_and_look(self, case: Case, seed: int) -> tuple[Row, bool]:
        """Run one case, and say whether another can run here."""
        return self.run(case, seed), self.is_usable()

    def run(self, case: Case, seed: int) -> Row:
        """Run one case; whatever it raises is its failure."""
        suite = self.suite(case.suite)
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._reset(seed)
                outcome = suite.run(case, self.device, seed)
                self._synchronize()  # a failure on a stream belongs to the case that queued the work
        except unittest.SkipTest as skip:
            outcome = Outcome("skip", str(skip))
        except Exception as error:
            outcome = Outcome("fail", describe(error), traceback.format_exc()[-_LONGEST_TRACE:])
        return Row.of(case, outcome, time.perf_counter() - start, seed)

    def is_usable(self) -> bool:
        """Whether cases can still run here. A device that has faulted fails all that its process asks of it."""
        type_ = torch.device(self.device).type
        module = torch.get_device_module(type_)
        devices: list[str | int] = [self.device]
        if _backend.loaded() and type_ == _backend.device:
            devices = [i for i in range(module.device_count()) if _backend.C.devices.has_context(i)]
        try:
            for device in devices:
                module.synchronize(device)
        except Exception:
            return False
        return True

    def _reset(self, seed: int) -> None:
        random.seed(seed)
        torch.manual_seed(seed)  # the devices' generators too
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        try:
            import numpy
        except ModuleNotFoundError:
            return
        numpy.random.seed(seed)

    def _synchronize(self) -> None:
        torch.get_device_module(torch.device(self.device).type).synchronize()


def _package_of(device: str | None) -> str | None:
    if device is not None:
        return {point.name: point.module for point in installed_backends()}.get(device.split(":")[0])
    try:
        return only_backend("it: --device NAME")
    except LookupError as error:
        raise ConformanceError(str(error)) from None


def _open(device: str | None, package: str | None) -> str:
    if package is not None:
        try:
            importlib.import_module(package)  # raises the reason, of which torch's autoload only warns
        except Exception as error:
            raise ConformanceError(
                f"the backend does not load: import {package} raises {describe(error).rstrip('.')}. "
                "Run torch-backplane doctor"
            ) from error
    name = device or _backend.device or torch._C._get_privateuse1_backend_name()
    try:
        found = torch.device(name)
        count = torch.get_device_module(found.type).device_count()
    except (RuntimeError, AttributeError) as error:
        raise ConformanceError(
            f"torch knows no device {name!r}, and no entry point of the group torch.backends has that name. "
            "Install its package, or name it: --package NAME"
        ) from error
    index = found.index or 0
    if index >= count:
        refusal = _backend.C.driver.info()["refusal"] if _backend.loaded() else ""
        why = f" ({refusal})" if refusal else ""
        raise ConformanceError(
            f"{found.type}:{index} was asked for, {count} devices are there{why}. Run torch-backplane doctor"
        )
    return f"{found.type}:{index}"


def _distribution(package: str | None) -> str:
    for point in installed_backends():
        if point.module == package and point.dist is not None:
            return f"{point.dist.name} {point.dist.version}"
    return package or ""
