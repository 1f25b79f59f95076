"""The Python module that Inductor writes around the kernels: calls, and allocations on the device.

Uses private classes of torch, ``PythonWrapperCodegen`` and ``SubgraphPythonWrapperCodegen``; tested on torch 2.11,
2.12, 2.13 and 2.15.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

import sympy
import torch
from torch._guards import TracingContext
from torch._inductor import config, ir
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.graph import SubgraphLowering
from torch._inductor.virtualized import V

from torch_backplane import _backend
from torch_backplane.compat import inductor
from torch_backplane.inductor import observer


class _Calls:
    """Methods of both kinds of wrapper for kernels of the dialect; those of Triton and other devices do not change."""

    def _generate_kernel_call_helper(
        self: Any,
        kernel_name: str,
        call_args: Any,
        *,
        device: torch.device | None = None,
        triton: bool = True,
        **rest: Any,
    ) -> None:
        if not triton and device is not None and device.type == _backend.device:
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))
        else:
            super()._generate_kernel_call_helper(  # type: ignore[misc]
                kernel_name, call_args, device=device, triton=triton, **rest
            )

    @classmethod
    def _get_triton_info_kernel_cls(cls) -> type[Any]:
        from torch_backplane.inductor.triton_code import SequenceKernel

        return SequenceKernel

    def make_allocation(self: Any, name: str, device: torch.device, *args: Any, **kwargs: Any) -> str:
        """Allocate by the backend's function on the graph's device, which Inductor expects to be the current one."""
        line: str = super().make_allocation(name, device, *args, **kwargs)  # type: ignore[misc]
        plain = re.sub(
            rf"= empty_strided\((.*), device='{device.type}', dtype=([\w.]+)\)",
            rf"= empty_strided_{device.type}(\1, \2, {device.index or 0})",
            line,
        )
        return plain.replace(f"device='{device.type}'", f"device='{device}'")

    def codegen_cuda_stream_enter(self: Any, stream_idx: int) -> Any:
        """Enter a stream of the program: torch defines its name in a device guard, which this wrapper does not use."""
        if not inductor.has_streams():
            raise NotImplementedError(
                f"a part of a compiled program on another stream of {_backend.device} needs torch 2.13, and this is "
                f"{torch.__version__}: enter the stream around the call of the compiled function"
            )
        from torch._inductor.stream_utils import DEFAULT_STREAM_IDX, get_stream_name  # not in 2.11

        name = get_stream_name(stream_idx)
        if stream_idx == DEFAULT_STREAM_IDX:
            self.writeline(f"{name} = torch.{_backend.device}.current_stream()")
        else:
            self.imports.writeline("from torch._dynamo.graph_bytecode_inputs import get_external_object_by_index")
            number = V.graph.scheduler.stream_idx_to_user_obj_idx[stream_idx]
            self.writeline(f"{name} = get_external_object_by_index({number})")
        return super().codegen_cuda_stream_enter(stream_idx)  # type: ignore[misc]


class Reported:
    """Reports the graph to an observer, and runs it in a profiler range with the observer's name."""

    def generate(self, is_inference: bool) -> Any:
        written = super().generate(is_inference)  # type: ignore[misc]
        if (seen_by := observer.current()) and not isinstance(V.graph, SubgraphLowering):
            seen_by.graph(V.graph)
        return written

    def generate_profiler_mark_wrapper_call(self, stack: ExitStack) -> None:
        """Use the observer's name: forward and backward share torch's. A subgraph runs in its graph's range."""
        seen_by = observer.current()
        if seen_by is None:
            super().generate_profiler_mark_wrapper_call(stack)  # type: ignore[misc]
        elif not isinstance(V.graph, SubgraphLowering):
            self.write_range(seen_by.mark(), stack)

    def write_range(self, name: str, stack: ExitStack) -> None:
        """Write the code that opens a range, which the stack closes."""
        raise NotImplementedError


def leave_calls_out_of_lists() -> None:
    """Remove calls from lists of the graph (``torch._foreach_*``): the scheduler fails for a list with a call.

    Runs after the graph is lowered and before it is scheduled. Seen on 2.11 to 2.15.
    """
    for name, operations in V.graph.lists.items():
        V.graph.lists[name] = [one for one in operations if isinstance(V.graph.name_to_op[one], ir.ComputedBuffer)]


def lines_for_replays() -> str:
    """The end of a graph's module: its ``call`` is recorded and replayed, if the mode requests that.

    Graphs with equal modules share one; each that asks for its ``call`` gets recordings of its own.
    """
    if not config.triton.cudagraphs or isinstance(V.graph, SubgraphLowering):
        return ""
    context = TracingContext.try_get()
    if reason := _why_not_recorded(context):
        return f"\nfrom torch_backplane.inductor.replay import skipped\nskipped({reason!r})\n"
    metadata = context.fw_metadata if context is not None else None
    inputs = V.graph.graph_inputs.values()
    tensors = [one for one in inputs if isinstance(one, ir.TensorBox)]
    symbols = {
        symbol for one in tensors for size in (*one.get_size(), *one.get_stride()) for symbol in size.free_symbols
    }
    facts = {
        "fixed": () if V.graph.is_backward or metadata is None else tuple(metadata.static_input_indices),
        "written": tuple(i for i, name in enumerate(V.graph.graph_inputs) if name in V.graph.mutated_inputs),
        "donated": tuple(V.graph.bw_donated_idxs or ()) if V.graph.is_backward else (),
        "sized": not symbols <= {one for one in inputs if isinstance(one, sympy.Symbol)},
        "kind": "backward" if V.graph.is_backward else "inference" if V.graph.is_inference else "forward",
    }
    given = ", ".join(f"{name}={value!r}" for name, value in facts.items())
    return f"""

if __name__ != "__main__":
    from torch_backplane.inductor.replay import replayed
    kernel_by_kernel = call
    del call


def __getattr__(name):
    if name == "call" and __name__ != "__main__":
        return replayed(kernel_by_kernel, {given})
    raise AttributeError(name)
"""


def _why_not_recorded(context: TracingContext | None) -> str:
    """Why a graph is not recorded although the mode requests it, or nothing."""
    if others := [one for one in V.graph.device_types if one not in (_backend.device, "meta")]:
        return f"an operand on {others[0]}"
    if len(V.graph.device_idxs) > 1:
        return "several devices"
    annotation = getattr(context, "cudagraph_annotation", None)  # torch.compiler.override_cudagraphs
    if annotation is not None and (annotation.bwd if V.graph.is_backward else annotation.fwd) is False:
        return "override_cudagraphs"
    if config.triton.cudagraph_skip_dynamic_graphs and any(
        isinstance(one, sympy.Expr) for one in V.graph.graph_inputs.values()
    ):
        return "changing sizes and config.triton.cudagraph_skip_dynamic_graphs"
    for node in V.graph.operations:
        operator = getattr(node, "op_overload", None)
        if not isinstance(operator, torch._ops.OpOverload):
            continue
        partitioned = {operator.name(), operator.name().rpartition(".")[0]} & set(config.custom_should_partition_ops)
        if torch.Tag.cudagraph_unsafe in operator.tags or partitioned:
            return f"the operator {operator}"
    return ""


class GroupWrapper(_Calls, Reported, PythonWrapperCodegen):
    """The wrapper of a graph."""

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: str | None, parent_wrapper: Any, partition_signatures: Any = None
    ) -> PythonWrapperCodegen:
        leave_calls_out_of_lists()
        if is_subgraph:
            return GroupSubgraphWrapper(str(subgraph_name), parent_wrapper, partition_signatures)
        return GroupWrapper()

    def write_range(self, name: str, stack: ExitStack) -> None:
        self.wrapper_call.writeline("from torch.profiler import record_function")
        self.wrapper_call.writeline(f"with record_function({name!r}):")
        stack.enter_context(self.wrapper_call.indent())

    def write_header(self) -> None:
        super().write_header()
        names = "bits_of, bits_of_float64, bits_of_float32, generated_kernel"
        self.imports.writeline(f"from torch_backplane.inductor.runtime import {names}")
        self.imports.writeline("from torch_backplane import _backend as backplane")
        self.imports.writeline(f"empty_strided_{_backend.device} = backplane.C.modules.empty_strided")

    def generate_after_suffix(self, result: Any) -> None:
        super().generate_after_suffix(result)
        result.splice(lines_for_replays())


class GroupSubgraphWrapper(_Calls, Reported, SubgraphPythonWrapperCodegen):
    """The wrapper of a subgraph, such as the branch of a condition."""
