"""Where torch's Inductor has lists of devices, differs between versions, or has no place to ask (docs/upstream.md)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import torch

from torch_backplane import _backend

__all__ = [
    "ask_before_graphs",
    "has_cpp_wrapper",
    "has_streams",
    "leave_out",
    "name_device_of_results",
    "name_type",
    "no_cpp_wrapper",
    "place_numbers",
    "take_generators",
]

_MARK = "_backplane_asks"


def has_cpp_wrapper() -> bool:
    """Whether torch's wrapper in C++ can be one of the device: from 2.13 on."""
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    return hasattr(CppWrapperCpu, "get_device_include_path_aot")


def has_streams() -> bool:
    """Whether torch's wrapper enters a stream of any device: from 2.13 on; before, of CUDA alone, or none."""
    return bool(torch.__version__ >= "2.13")


def no_cpp_wrapper(device: str) -> type[Any]:
    """What refuses to write C++ around kernels of the device, on a torch whose wrapper cannot."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    def refuse(*_: Any) -> NoReturn:
        raise NotImplementedError(
            f"cpp_wrapper and AOTInductor of {device} need torch 2.13, and this is {torch.__version__}:"
            " use torch.compile without them"
        )

    return type("GroupCppWrapper", (PythonWrapperCodegen,), {"create": staticmethod(refuse)})


def name_type(device: str) -> None:
    """Say what C++ calls the device's type: in a table up to 2.14, from then on by ``DeviceOpOverrides``."""
    from torch._inductor.codegen import cpp_utils

    getattr(cpp_utils, "DEVICE_TO_ATEN", {}).setdefault(device, "at::kPrivateUse1")


def ask_before_graphs(options_for: Callable[[torch.fx.GraphModule, Any], dict[str, Any]]) -> None:
    """Ask for more of Inductor's options before it compiles a graph: ``options_for(graph, inputs)``.

    Options are of a call of ``torch.compile``, not of a device. Generators of the device stand where they stood when
    the graph has been compiled. Seen on 2.11 to 2.15, options from 2.13 on; where torch has no such class nothing is
    done. Unnecessary once a backend of Inductor is asked about a graph.
    """
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if wrapper is None:
        return
    known: Any = wrapper.__call__
    if hasattr(known, _MARK):
        return
    takes_options = "config_patches" in inspect.signature(known).parameters

    @functools.wraps(known)
    def call(self: Any, model: Any, inputs: Any, **settings: Any) -> Any:
        if takes_options and (options := options_for(model, inputs)):
            settings["config_patches"] = {**options, **(settings.get("config_patches") or {})}
        with _generators_stay():
            return known(self, model, inputs, **settings)

    setattr(call, _MARK, True)
    wrapper.__call__ = call


@contextmanager
def _generators_stay() -> Iterator[None]:
    """Autotuning draws numbers of the device; torch puts the generators of the CPU, CUDA and XPU back, no others."""
    places = []
    for one in getattr(torch, _backend.device).random._all():
        with suppress(RuntimeError):  # a vendor's own generator may have no offset
            places.append((one, one.initial_seed(), one.get_offset()))
    try:
        yield
    finally:
        for one, seed, offset in places:
            if (one.initial_seed(), one.get_offset()) != (seed, offset):
                one.manual_seed(seed).set_offset(offset)


def take_generators() -> None:
    """Let a graph of the device have a generator for an input, as that of a checkpoint with random numbers has.

    Inductor makes an example of such an argument for a list of devices alone; here it gets one. Seen on 2.13 and 2.15;
    unnecessary once that example comes from the device's own generator.
    """
    from torch._inductor import ir, lowering

    op: Any = getattr(torch._prims.rng_prims, "graphsafe_run_with_rng_state", None)
    if op not in lowering.lowerings:
        return
    lower = lowering.lowerings[op]

    def with_example(*args: Any, rng_state: Any = None, **kwargs: Any) -> Any:
        if isinstance(rng_state, ir.GeneratorState) and rng_state.device.type == _backend.device:
            example = getattr(torch, _backend.device)._get_generator(rng_state.device).clone_state()
            rng_state = ir.OpaqueObjectState(name=rng_state.name, value=example)
        return lower(*args, rng_state=rng_state, **kwargs)

    lowering.lowerings[op] = with_example


def name_device_of_results() -> None:
    """Let what is computed of a number on the CPU and tensors of the device be on the device, whichever comes first.

    Torch asks which operand is on a GPU, and takes the first one's device where none is; it knows GPUs by a list. Seen
    on 2.11 to 2.15; unnecessary once it takes the device that the graph's node has.
    """
    from torch._inductor import lowering

    known = lowering.is_gpu
    lowering.is_gpu = lambda device: device == _backend.device or known(device)


def leave_out(scheduler: Any) -> None:
    """Let the scheduler of a graph of the device invert no reads, and join kernels without measuring them.

    To fuse a loop with what it reads, torch inverts the reads, for all devices but the CPU. It takes a place modulo the
    length of the buffer for its own inverse also where the loop is longer, as that of ``repeat`` is, and the kernel
    reads beyond the buffer's end. Seen on 2.13; unnecessary once it compares the lengths. What it measures is kernels
    of Triton alone.
    """
    from torch._inductor import config

    scheduler.shared_data_after_inverting_indexing = lambda *_: -1
    for method, option in (("fusion", "benchmark_fusion"), ("combo_kernel", "benchmark_combo_kernel")):
        name = f"speedup_by_{method}"
        setattr(scheduler, name, config.patch(option, False)(getattr(scheduler, name)))


def place_numbers() -> None:
    """Let ``index_fill`` of a tensor of the device take a number on the CPU, as eager's does.

    Torch decomposes it to an operator that takes tensors of one device. Seen on 2.13; unnecessary once it copies the
    number there.
    """
    import torch._refs as refs

    known = getattr(refs, "_index_fill", None)
    if known is None:
        return

    @functools.wraps(known)
    def fill(x: Any, dim: int, index: Any, value: Any, **kwargs: Any) -> Any:
        if isinstance(value, torch.Tensor) and x.device.type == _backend.device and not value.dim():
            value = value.to(x.device)
        return known(x, dim, index, value, **kwargs)

    refs._index_fill = fill
