"""Registers ``<device>ccl`` with torch.distributed; its native code loads with the first group."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import weakref
from datetime import timedelta
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.compat import distributed as compat
from torch_backplane.compat.dtensor import complete_sharding

_groups: weakref.WeakSet[Any] = weakref.WeakSet()


def backend_name() -> str:
    """The name for ``init_process_group(backend=...)``."""
    return f"{_backend.device}ccl"


def native_part() -> Any:
    """The native module of process groups."""
    return importlib.import_module(f"{_backend.package}._distributed")


def install() -> None:
    """Register the backend, unless the device has a vendor's."""
    if not torch.distributed.is_available():
        return
    backend: Any = torch.distributed.Backend
    if _backend.device not in backend.default_device_backend_map:
        backend.register_backend(backend_name(), _create, extended_api=True, devices=[_backend.device])
    compat.refuse_data_parallel(_backend.device)
    complete_sharding()
    compat.complete_backends(_backend.device, backend_name(), lambda: _backend.C.devices.count() > 0)


def _create(of: Any, options: Any) -> Any:
    """Make the device's backend of one process group.

    Args:
        of: torch's description of the group: store, ranks, timeout, name.
        options: ``torch.<device>.distributed.Options``, or None.
    """
    native = native_part()
    timeout = timedelta(seconds=of.timeout.total_seconds())
    if options is None:
        options = native.Options(timeout)
    elif not isinstance(options, native.Options):
        raise TypeError(
            f"pg_options for {backend_name()} are torch.{_backend.device}.distributed.Options, "
            f"not {type(options).__name__}"
        )
    options.group_name = of.group_id
    options.global_ranks_in_group = list(of.global_ranks_in_group)
    engine, why = choose_engine(of.group_size)
    make_gloo = _make_gloo if torch.distributed.is_gloo_available() else None
    if engine == "staged" and make_gloo is None:
        raise RuntimeError(f"this group of {backend_name()} needs Gloo, which this torch was built without: {why}")
    group = native.ProcessGroup(
        of.store, of.group_rank, of.group_size, options, make_gloo=make_gloo, is_native=engine == "native"
    )
    _shut_down_at_exit()
    _groups.add(group)
    return group


def choose_engine(size: int = 1) -> tuple[str, str]:
    """The engine of a new group's collectives, ``"native"`` or ``"staged"``, and why.

    Args:
        size: the group's number of ranks.

    Raises:
        ValueError: ``<DEVICE>_DIST`` is neither.
        RuntimeError: it is ``native``, which the driver does not have, or not for so many ranks.
    """
    variable = _backend.env_name("DIST")
    asked = os.environ.get(variable, "")
    if asked not in ("", "native", "staged"):
        raise ValueError(f"{variable}={asked}: it is native or staged")
    offered = "collective" in _backend.C.driver.capabilities()
    if asked == "native" and not offered:
        raise RuntimeError(
            f"{variable}=native: the driver {_backend.C.driver.info()['path']} has no collectives: "
            f"{_backend.C.driver.group_refusal('collective')}. Leave the variable unset, or take another driver"
        )
    most = native_part().most_ranks() if offered and asked != "staged" and size > 1 else 0
    if 0 < most < size:
        too_many = f"the group has {size} ranks, and the driver's collectives take {most} (max_size)"
        if asked:
            raise RuntimeError(f"{variable}=native: {too_many}. Leave the variable unset, or set {variable}=staged")
        return "staged", f"by the host and Gloo: {too_many}"
    if asked:
        return asked, f"{variable} says so"
    if offered:
        return "native", "the driver has bp.collective"
    why = _backend.C.driver.group_refusal("collective")
    return "staged", f"by the host and Gloo, as the driver has no bp.collective: {why}"


def _make_gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    gloo: Any = torch.distributed.ProcessGroupGloo
    group = gloo(store, rank, size, timeout=timeout)
    group._set_sequence_number_for_group()
    return group


@functools.cache
def _shut_down_at_exit() -> None:
    """A program may end without destroy_process_group(): calls in flight then have a few seconds to complete."""
    atexit.register(_shut_down)


def _shut_down() -> None:
    for group in list(_groups):
        group.shutdown()
    native_part().end_of_interpreter()
