"""Triton's interface of a driver (``triton.backends.driver.DriverBase``) over the device module."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from torch_backplane import _backend, compiler
from torch_backplane.triton import launch, record, releases, tuning

_CACHE_BYTES = 256 << 20  # what do_bench clears between two runs, at most


def _module() -> Any:
    return getattr(torch, _backend.device)


class _Utilities:
    """What Triton asks of a driver's loader."""

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        """The module, the function, registers, spills, and the most threads of a group."""
        loaded = launch.load(name, binary)
        loaded.kernel.prepare(device)
        return loaded.kernel, loaded if loaded.messages else loaded.kernel, 0, 0, 1 << 20

    def unload_module(self, module: Any) -> None:
        """Compiled kernels stay for the process."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        target = compiler.target(device)
        properties = _module().get_device_properties(device)
        return _Properties(
            max_shared_mem=target.local_bytes,
            multiprocessor_count=getattr(properties, "multi_processor_count", 1),
            warpSize=1,
            max_num_regs=target.registers,
        )


class _Properties(dict[str, int]):
    def __missing__(self, name: str) -> int:
        raise KeyError(f"{name}: no driver of {_backend.device} reports it, only {', '.join(self)}")


class _Named(type(DriverBase)):  # type: ignore[misc]
    """Triton lists the classes of the drivers if several are active."""

    def __repr__(cls) -> str:
        by = (
            f"TRITON_DEFAULT_BACKEND={_backend.device} in the environment selects it"
            if releases.has_default_backend(triton.__version__)
            else f'triton.runtime.driver.set_active(triton.backends.backends["{_backend.device}"].driver()) selects it'
        )
        return f"{super().__repr__()} of {_backend.device}: {by}"


class DialectDriver(DriverBase, metaclass=_Named):
    """The driver of the one backend of the process. It is active where the device compiles kernels, or TTIR."""

    def __init__(self) -> None:
        releases.check()
        self.utils = _Utilities()

    @staticmethod
    def launcher_cls(source: Any, metadata: Any) -> Callable[..., None]:
        """What launches a kernel that is loaded: called once for each."""
        record.add(source, metadata)
        return launch.launcher(source, metadata)

    @staticmethod
    def is_active() -> bool:
        """Whether the process has a device that compiles kernels."""
        if not (_backend.loaded() and _module().is_available()):
            return False
        return compiler.has_target()

    def get_current_device(self) -> int:
        """Its index."""
        return int(_module().current_device())

    def set_current_device(self, device: int) -> None:
        """By its index."""
        _module().set_device(device)

    def get_current_stream(self, device: int) -> int:
        """Nothing that a launch needs: it takes the current stream of its tensors' device."""
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Of NVIDIA's chips: none."""
        return (0, 0)

    @cached_property
    def _target(self) -> GPUTarget:
        target = compiler.target()
        return GPUTarget(_backend.device, f"{target.name}-{target.compiler}", target.group_size)

    def get_current_target(self) -> GPUTarget:
        """The target of the current device; its ``warp_size`` is the size of a group."""
        return self._target

    def get_active_torch_device(self) -> torch.device:
        """The current device."""
        return torch.device(_backend.device, self.get_current_device())

    def map_python_to_cpp_type(self, ty: str) -> str:
        """The C++ type of an argument, by its name in a signature."""
        return _cpp_types()[ty] if ty[0] != "*" else "void*"

    def get_benchmarker(self) -> Callable[..., Any]:
        """``triton.testing.do_bench`` of an autotuner, by the device's events."""
        return tuning.Benchmarker()

    def get_device_interface(self) -> Any:
        """The device module."""
        return _module()

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """What :meth:`clear_cache` writes."""
        return torch.empty(_CACHE_BYTES // 4, dtype=torch.int, device=_backend.device)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Write more than a cache holds."""
        cache.zero_()


@cache
def _cpp_types() -> dict[str, str]:
    integers = {
        f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)
    }
    floats = dict.fromkeys(("fp16", "bf16", "fp32", "f32", "fp64"), "double")
    return {"i1": "int8_t", "u1": "uint8_t", **integers, **floats}
