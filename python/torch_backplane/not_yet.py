"""What ``torch.compile`` and ``torch.distributed`` answer while this version of the core has neither for the device.

Both are reached by torch's own registrations. A vendor's take their place: ``register_backend_for_device`` of Inductor;
a backend of ``torch.distributed``, which becomes the default as ``Backend.default_device_backend_map[device]``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from torch_backplane import _backend

__all__ = ["INDUCTOR", "cpu_groups_by_default"]

_CPU_GROUP = "backplane_cpu"


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        f"torch.compile cannot generate code for {_backend.device}: its driver compiles no kernels here (bp.compiler "
        "and bp.module; torch_backplane.compiler tells more). Compile with "
        'backend="aot_eager" or backend="eager", which run on the device\'s kernels, or leave torch.compile out'
    )


def _inductor(name: str) -> Any:
    """What Inductor asks the device module for before it compiles anything, for the CPU too."""
    from torch._inductor.codegen import common, wrapper

    from torch_backplane import compiler

    if compiler.is_available():
        from torch_backplane.inductor.registration import register

        register()
        raise AttributeError(f"{name} is registered with Inductor, and no attribute of the device module", name=name)
    if name == "Scheduling":
        # Looked up before the classes are used; a vendor may have set its own.
        common.device_op_overrides_dict.setdefault(_backend.device, common.DeviceOpOverrides())
        return _refuse
    return type(name, (wrapper.PythonWrapperCodegen,), {"__init__": _refuse, "create": staticmethod(_refuse)})


INDUCTOR = {name: _inductor for name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen")}


def cpu_groups_by_default() -> None:
    """Let ``init_process_group()`` without a backend make a group for CPU tensors, as on a machine without a device.

    torch looks for the default backend of the accelerator, whatever the program communicates. Unnecessary once there
    are collectives for the device.
    """
    if not torch.distributed.is_available():
        return
    backend: Any = torch.distributed.Backend
    if _backend.device in backend.default_device_backend_map:
        return
    backend.register_backend(_CPU_GROUP, _make_cpu_group, devices=["cpu"])
    backend.default_device_backend_map[_backend.device] = _CPU_GROUP


def _make_cpu_group(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroup, ProcessGroupGloo

    gloo: Any = ProcessGroupGloo(store, rank, size, timeout=timeout)
    gloo._set_sequence_number_for_group()
    group: Any = ProcessGroup(store, rank, size)
    group._set_default_backend(ProcessGroup.BackendType.GLOO)
    group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
    return group
