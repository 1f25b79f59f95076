"""The Python module that Inductor writes around the kernels: how it calls one, and allocates on the device.

A private class of torch stands behind it: ``PythonWrapperCodegen`` of torch 2.13; others were not tried.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen


class _Calls:
    """What both kinds of wrapper do for the device's kernels; others are as they were."""

    def _generate_kernel_call_helper(
        self: Any, kernel_name: str, call_args: Any, *, device: torch.device | None = None, **rest: Any
    ) -> None:
        from torch_backplane import _backend

        if device is not None and device.type == _backend.device:
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))
        else:
            super()._generate_kernel_call_helper(kernel_name, call_args, device=device, **rest)  # type: ignore[misc]

    def make_allocation(self: Any, name: str, device: torch.device, *args: Any, **kwargs: Any) -> str:
        """With the device's index: Inductor expects the current device to be the graph's."""
        line: str = super().make_allocation(name, device, *args, **kwargs)  # type: ignore[misc]
        return line.replace(f"device='{device.type}'", f"device='{device}'")


class GroupWrapper(_Calls, PythonWrapperCodegen):
    """Of a graph."""

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: str | None, parent_wrapper: Any, partition_signatures: Any = None
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            return GroupSubgraphWrapper(str(subgraph_name), parent_wrapper, partition_signatures)
        return GroupWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.imports.writeline("from torch_backplane.inductor.runtime import generated_kernel")


class GroupSubgraphWrapper(_Calls, SubgraphPythonWrapperCodegen):
    """Of a part of a graph, such as the branch of a condition."""
