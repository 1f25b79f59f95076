"""Finds where a program names CUDA, and what to write for a device of any name. Implements ``torch-backplane port``.

It reads source text alone: no torch is needed, nothing of the program is imported or run.
"""

from __future__ import annotations

from backplane_tools.port.program import Ported, notebook_problem, port_source
from backplane_tools.port.source import Place
from backplane_tools.port.target import Target

__all__ = ["Place", "Ported", "Target", "notebook_problem", "port_source"]
