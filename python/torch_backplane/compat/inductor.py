"""Where Inductor has lists of devices, differs between versions, or does not ask a backend (docs/upstream.md)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import torch

from torch_backplane import _backend
from torch_backplane.compat import replaces


def has_cpp_wrapper() -> bool:
    """Whether torch's C++ wrapper supports the device: from 2.13 on."""
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    return hasattr(CppWrapperCpu, "get_device_include_path_aot")


def has_streams() -> bool:
    """Whether torch's wrapper enters streams of any device: from 2.13 on; before, only of CUDA, or none."""
    return bool(torch.__version__ >= "2.13")


def no_cpp_wrapper(device: str) -> type[Any]:
    """A wrapper class that refuses to write C++ for the device, on a torch whose C++ wrapper does not support it."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    def refuse(*_: Any) -> NoReturn:
        raise NotImplementedError(
            f"cpp_wrapper and AOTInductor of {device} need torch 2.13, and this is {torch.__version__}:"
            " use torch.compile without them"
        )

    return type("GroupCppWrapper", (PythonWrapperCodegen,), {"create": staticmethod(refuse)})


def name_type(device: str) -> None:
    """Set the device type's name in C++: in a table up to 2.14; later versions ask ``DeviceOpOverrides``."""
    from torch._inductor.codegen import cpp_utils

    getattr(cpp_utils, "DEVICE_TO_ATEN", {}).setdefault(device, "at::kPrivateUse1")


def ask_before_graphs(options_for: Callable[[torch.fx.GraphModule, Any], dict[str, Any]]) -> None:
    """Add Inductor's options ``options_for(graph, inputs)`` before it compiles a graph.

    torch has options for a call of ``torch.compile``, not for a device. Compilation leaves the states of the device's
    generators unchanged. Seen on 2.11 to 2.15, options from 2.13 on; does nothing if torch has no such class.
    Unnecessary once Inductor asks a backend about a graph.
    """

    @replaces(getattr(torch, "_TorchCompileInductorWrapper", None), "__call__")
    def call(known: Any, self: Any, model: Any, inputs: Any, **settings: Any) -> Any:
        takes_options = "config_patches" in inspect.signature(known).parameters
        if takes_options and (options := options_for(model, inputs)):
            settings["config_patches"] = {**options, **(settings.get("config_patches") or {})}
        with _generators_stay():
            return known(self, model, inputs, **settings)


@contextmanager
def _generators_stay() -> Iterator[None]:
    """Restore the device's generators: autotuning draws numbers, and torch only restores CPU, CUDA and XPU."""
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


def when_graphs_are_reset(function: Callable[[], None]) -> Callable[[], None]:
    """Decorate a function to be called when ``torch.compiler.reset`` drops recorded graphs.

    torch drops those of CUDA. Seen on 2.11 to 2.15; unnecessary once it calls a backend.
    """
    from torch._inductor import cudagraph_trees

    @replaces(cudagraph_trees, "reset_cudagraph_trees")
    def reset(known: Any) -> None:
        function()
        known()

    return function


def take_generators() -> None:
    """Let a graph of the device have a generator as an input, as a checkpoint with random numbers has.

    Inductor makes an example of such an argument only for a list of devices; here it gets one. Seen on 2.13 and 2.15;
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
    """Place results of a number on the CPU and tensors of the device on the device, whichever operand comes first.

    torch chooses the operand on a GPU, or else the first one; it has a list of GPUs. Seen on 2.11 to 2.15; unnecessary
    once it uses the device of the graph's node.
    """
    from torch._inductor import lowering

    @replaces(lowering, "is_gpu")
    def is_gpu(known: Any, device: Any) -> bool:
        return device == _backend.device or known(device)


def leave_out(scheduler: Any) -> None:
    """Keep the scheduler of a graph of the device from inverting reads and from measuring before it joins kernels.

    To fuse a loop with what it reads, torch inverts the reads on all devices but the CPU. It treats an index modulo the
    length of the buffer as its own inverse even if the loop is longer, as in ``repeat``, and the kernel reads beyond
    the buffer's end. Seen on 2.13; unnecessary once it compares the lengths. It can only measure kernels of Triton.
    """
    from torch._inductor import config

    scheduler.shared_data_after_inverting_indexing = lambda *_: -1
    for method, option in (("fusion", "benchmark_fusion"), ("combo_kernel", "benchmark_combo_kernel")):
        name = f"speedup_by_{method}"
        setattr(scheduler, name, config.patch(option, False)(getattr(scheduler, name)))


def place_numbers() -> None:
    """Let ``index_fill`` of a tensor of the device take a number on the CPU, as in eager mode.

    torch decomposes it to an operator that takes tensors of one device. Seen on 2.13; unnecessary once it copies the
    number there.
    """
    import torch._refs as refs

    @replaces(refs, "_index_fill")
    def fill(known: Any, x: Any, dim: int, index: Any, value: Any, **kwargs: Any) -> Any:
        if isinstance(value, torch.Tensor) and x.device.type == _backend.device and not value.dim():
            value = value.to(x.device)
        return known(x, dim, index, value, **kwargs)
