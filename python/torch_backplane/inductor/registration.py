"""Registration of the device with Inductor and Dynamo at the first compilation: interface, classes, cache key.

Uses private classes of torch, ``DeviceInterface``, ``DeviceOpOverrides`` and ``CustomGraphModulePass``; tested on torch
2.11, 2.12, 2.13 and 2.15.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch

from torch_backplane import _backend, compiler, paths
from torch_backplane.compat import inductor
from torch_backplane.inductor import triton


@dataclass(frozen=True)
class InductorProperties:
    """Properties for Inductor's heuristics: how often a reduction is split, how large a block may be."""

    multi_processor_count: int
    warp_size: int = 32  # a core has no warps; with 1 torch 2.13 unrolls the first part of a split reduction
    max_threads_per_multi_processor: int = 1024
    max_threads_per_block: int = 1024
    major: int = 0


def _module() -> ModuleType:
    module: ModuleType = getattr(torch, _backend.device)
    return module


@cache
def _interface() -> type[Any]:
    from torch._dynamo.device_interface import DeviceInterface

    module = _module()

    def properties(device: Any = None) -> InductorProperties:
        found = module.get_device_properties(device)
        return InductorProperties(max(1, found.multi_processor_count), major=found.major)

    class BackplaneInterface(DeviceInterface):
        """Calls of the device module."""

        device = module.device
        Event = module.Event
        Stream = module.Stream
        current_device = staticmethod(module.current_device)
        set_device = staticmethod(module.set_device)
        device_count = staticmethod(module.device_count)
        is_available = staticmethod(module.is_available)
        stream = staticmethod(module.stream)
        current_stream = staticmethod(module.current_stream)
        set_stream = staticmethod(module.set_stream)
        synchronize = staticmethod(module.synchronize)
        memory_allocated = staticmethod(module.memory_allocated)
        exchange_device = staticmethod(module._exchange_device)
        maybe_exchange_device = staticmethod(module._maybe_exchange_device)
        _set_stream_by_id = staticmethod(module._set_stream_by_id)

        class Worker:
            """The same, for processes that must not open the device."""

            current_device = staticmethod(module.current_device)
            set_device = staticmethod(module.set_device)
            get_device_properties = staticmethod(properties)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return int(module.current_stream(device_idx).native_handle)

        @staticmethod
        def get_compute_capability(device: Any = None) -> str:
            return compiler.target(torch.device(device).index or 0 if device is not None else 0).name

        @staticmethod
        def is_triton_capable(device: Any = None) -> bool:
            return triton.is_usable()

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return bool(module.is_bf16_supported(including_emulation))

    return BackplaneInterface


def _overrides() -> Any:
    from torch._inductor.codegen.common import DeviceOpOverrides

    name = _backend.device

    class Overrides(DeviceOpOverrides):
        """Lines of the module that Inductor writes."""

        def import_get_raw_stream_as(self, name_: str) -> str:
            return f"{name_} = lambda index: torch.{name}.current_stream(index).native_handle"

        def set_device(self, device_idx: int | str) -> str:
            return f"torch.{name}.set_device({device_idx})"

        def synchronize(self) -> str:
            return f"torch.{name}.synchronize()"

        def device_guard(self, device_idx: int | str) -> str:
            return f"torch.{name}.device({device_idx})"

        def aten_device_type(self) -> str:
            return "at::kPrivateUse1"

        def cpp_kernel_type(self) -> str:
            return "void*"  # of a member that is not used: a kernel is an object of the file

    return Overrides()


@cache
def _sources() -> str:
    """A hash of all files that generate code or are part of it, for the key of Inductor's cache."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in _files())).hexdigest()


def _files() -> list[Path]:
    here = Path(__file__).parent
    own = (file for folder in (here, here.parent / "compat", here.parent / "triton") for file in folder.rglob("*"))
    texts = sorted(file for file in own if file.suffix in (".py", ".h"))
    return [*texts, *(Path(folder) / "backplane" / "generated.h" for folder in paths.include_paths())]


def _check_settings() -> None:
    from torch._inductor import config

    from torch_backplane.inductor.language import language, require_triton

    require_triton()
    if language() == "triton":
        return
    if config.fx_wrapper:
        raise NotImplementedError(
            "torch._inductor.config.fx_wrapper: a graph of FX only calls kernels of Triton, and those of "
            f"{_backend.device} are written in the kernel dialect: leave it off, or use config.cpp_wrapper"
        )
    if config.runtime_triton_nan_asserts:
        raise NotImplementedError(
            "torch._inductor.config.runtime_triton_nan_asserts only checks kernels of Triton: use config.nan_asserts"
        )
    if config.profile_bandwidth:
        raise NotImplementedError(
            "torch._inductor.config.profile_bandwidth only measures kernels of Triton: `torch-backplane explain "
            f"--compiled` reports the time of each kernel of {_backend.device}"
        )


def _graph_pass() -> Any:
    """The device's pass over a graph; its uuid adds to the key of Inductor's caches what else code depends on."""
    from torch._inductor.custom_graph_pass import CustomGraphModulePass

    from torch_backplane.inductor import attention, random

    class Pass(CustomGraphModulePass):
        def __call__(self, gm: torch.fx.GraphModule) -> None:
            _check_settings()
            attention.decompose(gm)
            random.take_at_once(gm)
            random.keep_order(gm)

        def uuid(self) -> str:
            return cache_key()

    return Pass()


def cache_key() -> str:
    """What code for the device depends on beside the graph and torch: a part of the key of every cache of such code."""
    from torch_backplane.inductor.language import language

    facts = [version("torch-backplane"), _sources(), language()]
    if compiler.has_target():  # a graph may be for any of the devices
        facts += [str(compiler.target(index)) for index in range(_module().device_count())]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _cpp_wrapper() -> type[Any]:
    """The class that writes C++ around kernels of the device; on an older torch, one that refuses to."""
    if not inductor.has_cpp_wrapper():
        return inductor.no_cpp_wrapper(_backend.device)
    from torch_backplane.inductor.cpp_wrapper import GroupCppWrapper

    inductor.name_type(_backend.device)
    return GroupCppWrapper


def is_registered() -> bool:
    """Whether classes for the device are registered, these or a vendor's own."""
    from torch._inductor.codegen import common

    return _backend.device in common.device_codegens


def is_anothers() -> bool:
    """Whether those classes are a vendor's own."""
    from torch._inductor.codegen import common

    from torch_backplane.inductor.triton_code import ChosenCodegen

    return is_registered() and not isinstance(common.device_codegens[_backend.device], ChosenCodegen)


def register() -> None:
    """Register the device with Inductor, once; a vendor's own registration is kept."""
    if is_registered():
        return
    from torch._dynamo import device_interface
    from torch._inductor.codegen import common

    from torch_backplane.inductor import choices, config, fallbacks, random
    from torch_backplane.inductor.scheduling import GroupScheduling
    from torch_backplane.inductor.triton_code import ChosenCodegen
    from torch_backplane.inductor.wrapper import GroupWrapper

    name = _backend.device
    for key in (name, *(f"{name}:{index}" for index in range(_module().device_count()))):
        device_interface.register_interface_for_device(key, _interface())
    common.register_device_op_overrides(name, _overrides())
    fallbacks.register()
    random.register()
    inductor.take_generators()
    inductor.name_device_of_results()
    inductor.place_numbers()
    choices.register()
    triton.register()
    common.register_backend_for_device(
        name,
        GroupScheduling,
        GroupWrapper,
        _cpp_wrapper(),
        device_custom_pass=_graph_pass(),
        device_custom_config=cast("Any", config),  # a module that torch has made a ConfigModule
    )
    common.device_codegens[name] = ChosenCodegen(**vars(common.device_codegens[name]))
