"""Torch's own device-generic test base on the loaded backend, for a vendor's test file.

.. code-block:: python

    from torch_backplane.testing.device_type import TestCase, dtypes, instantiate_device_type_tests


    class TestSort(TestCase):
        @dtypes(torch.float32, torch.int64)
        def test_sort(self, device, dtype): ...


    instantiate_device_type_tests(TestSort, globals())

makes ``TestSortPRIVATEUSE1.test_sort_mydevice_float32`` and so on. Torch lists the devices when its module is
imported, which must be after the backend: import it from here, not from torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.testing.plugin import installed_package

if not _backend.loaded():
    import importlib

    importlib.import_module(installed_package())

try:
    from torch.testing._internal import common_device_type
    from torch.testing._internal.common_device_type import (
        deviceCountAtLeast,
        dtypes,
        onlyNativeDeviceTypes,
        onlyPRIVATEUSE1,
        ops,
    )
    from torch.testing._internal.common_utils import TestCase, parametrize, run_tests, subtest
except ModuleNotFoundError as error:
    raise ImportError(
        f"torch.testing's device-generic test base needs {error.name}, which is not installed: "
        "pip install 'torch-backplane[conformance]'"
    ) from error

__all__ = [
    "TestCase",
    "deviceCountAtLeast",
    "dtypes",
    "instantiate_device_type_tests",
    "onlyNativeDeviceTypes",
    "onlyPRIVATEUSE1",
    "ops",
    "parametrize",
    "run_tests",
    "subtest",
]


def instantiate_device_type_tests(
    generic: type, scope: dict[str, Any], only_for: str | Sequence[str] | None = None, **options: Any
) -> None:
    """Make a test class for each device from a generic one, which is removed.

    Args:
        generic: a subclass of :class:`TestCase` whose tests take ``device``.
        scope: the ``globals()`` of the test file.
        only_for: device types; None is the loaded backend alone.
        **options: what torch's function of this name takes, such as ``except_for``.

    Raises:
        RuntimeError: no class was made, because there is no such device.
    """
    wanted = [only_for] if isinstance(only_for, str) else list(only_for or [_backend.device])
    before = set(scope)
    common_device_type.instantiate_device_type_tests(generic, scope, only_for=wanted, **options)
    made = [name for name in scope if name not in before and name.startswith(generic.__name__)]
    if not made:
        available = torch.get_device_module(_backend.device).is_available()
        raise RuntimeError(
            f"{generic.__name__}: no test class for {', '.join(wanted)}. The loaded backend is {_backend.device!r}, "
            f"is_available() is {available}; import this module before torch.testing._internal.common_device_type"
        )
