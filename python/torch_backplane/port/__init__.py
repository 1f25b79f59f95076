"""Finds where a program names CUDA, and says what to write for a device of any name. Behind ``torch-backplane port``.

It reads source text alone: no torch is needed, nothing of the program is imported or run.
"""

from __future__ import annotations

from torch_backplane.port.notebook import notebook_problem
from torch_backplane.port.program import Ported, port_source
from torch_backplane.port.source import Place
from torch_backplane.port.target import Target

__all__ = ["Place", "Ported", "Target", "notebook_problem", "port_source"]
