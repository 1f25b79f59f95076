"""Notebooks are not ported: what is said of one, if a cell of its code names CUDA."""

from __future__ import annotations

import json

from backplane_tools.port.program import may_name_cuda

__all__ = ["notebook_problem"]

_CONVERT = "a notebook: convert it by `jupyter nbconvert --to script`, and port that"


def notebook_problem(content: bytes) -> str:
    """Why a notebook is not read, and what to do; empty for one whose code has no word of CUDA's."""
    try:
        cells = json.loads(content)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, LookupError, TypeError):
        code = [content.decode("utf-8", "replace")]  # of an old format, or none
    return _CONVERT if may_name_cuda("\n".join(code).encode()) else ""
