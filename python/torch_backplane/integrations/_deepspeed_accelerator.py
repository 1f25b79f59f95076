"""The device as DeepSpeed asks for it. A method that ``torch.<device>`` has as a function by its name is that."""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator
from deepspeed.ops.op_builder.builder import OpBuilder

from torch_backplane import _backend
from torch_backplane.process_group import backend_name

_device, _module = _backend.device, torch.get_device_module(_backend.device)
# What runs on the host, for what is offloaded there: DeepSpeed compiles it at its first use.
_ON_THE_HOST = ("AsyncIOBuilder", "CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder")


class FusedAdamBuilder(OpBuilder):
    """``FusedAdam``, DeepSpeed's Adam, by torch's fused operator."""

    NAME = "fused_adam"

    def __init__(self) -> None:
        super().__init__(self.NAME)

    def absolute_name(self) -> str:
        return f"{__name__}.{self.name}"

    def sources(self) -> list[str]:
        return []

    def load(self, verbose: bool = True) -> Any:
        return self

    @staticmethod
    def multi_tensor_adam(chunk: int, overflow: Any, lists: Any, lr: float, *others: Any) -> None:
        """Apply a step; torch corrects the bias of the moments always, which is 0 after infinitely many steps."""
        beta1, beta2, eps, step, decoupled, correct, decay = others
        gradients, parameters, means, squares = lists
        at = torch.tensor(float(step) if correct else math.inf, device=parameters[0].device)
        numbers = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": decay}
        update = torch._fused_adamw_ if decoupled else torch._fused_adam_
        steps = [at] * len(parameters)
        update(parameters, gradients, means, squares, [], steps, amsgrad=False, maximize=False, **numbers)


class _NotHere(FusedAdamBuilder):
    NAME = "not_implemented"

    def is_compatible(self, verbose: bool = False) -> bool:
        return False

    def load(self, verbose: bool = True) -> Any:
        raise NotImplementedError(f"DeepSpeed has no kernels of this operator for {_device}: use an optimizer of torch")


def _builder(self: Any, name: str) -> Any:
    if name == "FusedAdamBuilder":
        return FusedAdamBuilder
    return getattr(importlib.import_module(self.op_builder_dir()), name) if name in _ON_THE_HOST else _NotHere


def _name(self: Any, index: int | None = None) -> str:
    return _device if index is None else f"{_device}:{index}"


def _limit(self: Any, environment: dict[str, str], devices: list[int]) -> None:
    environment[_backend.env_name("VISIBLE_DEVICES")] = ",".join(map(str, devices))


def _same(name: str) -> Any:
    found = getattr(_module, name, None)
    return found if isinstance(found, type) or found is None else staticmethod(found)


_DTYPES = [torch.float32, torch.float16, torch.bfloat16]
_members: dict[str, Any] = {name: _same(name) for name in DeepSpeedAccelerator.__abstractmethods__}
_members |= dict.fromkeys(("is_synchronized_device", "use_host_timers"), lambda self: False)
_members |= dict.fromkeys(("resolves_data_dependency", "handles_memory_backpressure"), lambda self: False)
_members |= dict.fromkeys(("range_push", "range_pop"), lambda self, *args, **kwargs: None)
_members |= {
    "_name": _device,
    "device_name": _name,
    "current_device_name": lambda self: _name(self, self.current_device()),
    "communication_backend_name": lambda self: backend_name(),
    "default_generator": lambda self, index: _module.default_generators[index],
    "random": lambda self: torch.random,
    "available_memory": lambda self, index=None: _module.mem_get_info(index)[0],
    "total_memory": lambda self, index=None: _module.mem_get_info(index)[1],
    "is_fp16_supported": lambda self: True,
    "supported_dtypes": lambda self: list(_DTYPES),
    "is_triton_supported": lambda self: False,  # its kernels are tuned for CUDA
    "lazy_call": lambda self, call: call(),
    "on_accelerator": lambda self, tensor: tensor.device.type == _device,
    "create_graph": lambda self: _module.CUDAGraph(),
    "capture_to_graph": lambda self, graph, pool=None, stream=None: _module.graph(graph, pool, stream),
    "replay_graph": lambda self, graph: graph.replay(),
    "op_builder_dir": lambda self: "deepspeed.ops.op_builder.cpu",
    "get_op_builder": _builder,
    "create_op_builder": lambda self, name: _builder(self, name)(),
    "build_extension": lambda self: importlib.import_module("torch.utils.cpp_extension").BuildExtension,
    "export_envs": lambda self: [_device.upper(), "LD_LIBRARY", "PATH"],
    "visible_devices_envs": lambda self: [_backend.env_name("VISIBLE_DEVICES")],
    "set_visible_devices_envs": _limit,
    "get_compile_backend": lambda self: self._compile_backend,
    "set_compile_backend": lambda self, backend: setattr(self, "_compile_backend", backend),
}

Accelerator = type("Accelerator", (DeepSpeedAccelerator,), _members)
"""The class: what :func:`deepspeed.accelerator.get_accelerator` returns is of it."""
