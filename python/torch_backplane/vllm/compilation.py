"""Inductor's passes of vLLM, without those that write CUDA operators into a graph."""

from __future__ import annotations

from typing import Any

from vllm.compilation.passes.pass_manager import PostGradPassManager
from vllm.compilation.passes.utility.fix_functionalization import FixFunctionalizationPass


class _Nothing(FixFunctionalizationPass):
    """The original looks for vLLM's compiled operators by name, which do not exist here."""

    def __call__(self, graph: Any) -> None:
        pass


class PassManager(PostGradPassManager):
    """vLLM's own, less that one."""

    def configure(self, config: Any) -> None:
        """Select the passes."""
        super().configure(config)
        self.fix_functionalization = _Nothing(config)
