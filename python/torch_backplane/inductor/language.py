"""The language of the kernels that Inductor writes for the device: the kernel dialect, or torch's own Triton code."""

from __future__ import annotations

import os

from torch_backplane import _backend, compiler
from torch_backplane.inductor import config, triton

LANGUAGES = ("dialect", "triton")


def language() -> str:
    """One of ``LANGUAGES``: the chosen one, or else that of the driver's compiler, the dialect if it has both."""
    if chosen := _chosen():
        return chosen
    return "triton" if _is_of_ttir() and not triton.why_none() else "dialect"


def _chosen() -> str:
    variable = _backend.env_name("INDUCTOR")
    for name, chosen in (
        ("torch_backplane.inductor.config.kernels", config.kernels),
        (variable, os.environ.get(variable, "")),
    ):
        if chosen and chosen not in LANGUAGES:
            raise ValueError(f"{name} is {chosen!r}: use one of {', '.join(LANGUAGES)}")
        if chosen:
            return str(chosen)
    return ""


def _is_of_ttir() -> bool:
    """Whether the driver compiles Triton's kernels alone."""
    return not compiler.is_available() and compiler.is_available("ttir")


def why_none() -> str:
    """Why Inductor writes no kernels; "" if it does, or if a choice of Triton is to be refused."""
    if language() == "triton":
        return ""
    if _is_of_ttir() and not _chosen():
        return f"its driver compiles Triton's kernels alone (TTIR), and {triton.why_none()}"
    return compiler.why_none()


def require_triton() -> None:
    """Raise NotImplementedError if the chosen language is Triton, and it cannot be used."""
    if language() == "triton" and (why := triton.why_none()):
        raise NotImplementedError(
            f"Inductor is set to write kernels of Triton for {_backend.device}, but {why}. Or unset "
            f"torch_backplane.inductor.config.kernels and {_backend.env_name('INDUCTOR')}"
        )


def options() -> dict[str, bool]:
    """Inductor's options where the driver compiles Triton's kernels alone.

    Eager's random numbers are the operators', which fall back to the CPU; and TTIR need not support assertions.
    """
    return {"fallback_random": True, "assert_indirect_indexing": False} if _is_of_ttir() else {}
