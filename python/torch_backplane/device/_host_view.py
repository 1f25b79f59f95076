"""Device memory as a CPU tensor, for the time of a ``with`` block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import torch

from torch_backplane import _backend


@contextlib.contextmanager
def host_view(tensor: torch.Tensor, mode: Literal["r", "r+"] = "r+") -> Iterator[torch.Tensor]:
    """View a device tensor from the host, as a CPU tensor of the same sizes and dtype.

    Where the host reaches the device's memory (the driver has a coherent ``bp.host_view``) the CPU tensor lies over
    that memory: nothing is copied, strides are the tensor's own, and the tensor's storage cannot be resized while
    the CPU tensor, or a numpy array over it, is alive. Elsewhere it is a copy, with the strides of
    ``torch.empty_like``, that is written back at the end.

    Order: the block begins when the work of the current stream of the tensor's device is done. What the host has
    written when the block ends is seen by all work that is queued later, on any stream. In the block the memory is
    the host's: what the device reads or writes of it then is undefined. Several threads may have views, of
    different memory.

    After the block the CPU tensor must not be used any more: a copy is cut off from the device, a view in place is
    ordered with nothing.

    An exception leaves the block as its end does: what was written until then is written, as in any loop over a CPU
    tensor.

    Autograd: the CPU tensor has no gradient. With ``mode="r+"`` the tensor counts as changed in place, so that a
    backward pass which needs its old values raises.

    Args:
        tensor: a dense tensor on the device.
        mode: ``"r+"`` reads and writes. ``"r"`` reads: nothing is written back, and the end raises where torch has
            written to the CPU tensor. (torch has no read-only tensors: in place, such a write has reached the device.)

    Raises:
        ValueError: another mode, or a tensor on another device.
        NotImplementedError: a tensor that is sparse, nested, quantized or fake, or one that wraps others.
        RuntimeError: the tensor requires grad, and grad mode is on; it is an inference tensor, to be written outside of
            inference mode; its elements share memory, and may be written; it has a lazy conjugate or negative bit; a
            stream captures a graph; with ``"r"``, something was written.
    """
    _check(tensor, mode)
    with torch.inference_mode(False), torch.no_grad():
        if _backend.C.memory.has_host_view():
            host = _backend.C.memory.host_view(tensor)
            is_copy = False
        else:
            host = torch.empty_like(tensor, device="cpu", requires_grad=False).copy_(tensor)
            is_copy = True
        shown = host.detach()  # resize_ and its like change this one alone
    before = host._version
    has_failed = True
    try:
        yield shown
        has_failed = False
    finally:
        if mode == "r+":
            _end_writes(tensor, host, is_copy)
        elif host._version != before and not has_failed:
            raise RuntimeError('host_view: the CPU tensor was written to, and the view is read-only: use mode="r+"')


def _check(tensor: torch.Tensor, mode: str) -> None:
    if mode not in ("r", "r+"):
        raise ValueError(f'host_view: mode must be "r" or "r+", got {mode!r}')
    _backend.C.memory.check_host_view(tensor)
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            "host_view: the tensor requires grad, and what the host does is not recorded: give tensor.detach(), or "
            "write the block under torch.no_grad()"
        )
    if mode == "r":
        return
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            'host_view: an inference tensor is changed in inference mode alone: use mode="r", torch.inference_mode(), '
            "or a clone"
        )
    if _may_overlap(tensor):
        raise RuntimeError(
            f"host_view: elements of the tensor share memory (sizes {tuple(tensor.shape)}, strides {tensor.stride()}), "
            'so that a write to one would change others: use mode="r", or a clone'
        )


def _may_overlap(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie at one place: no dimension may step into what the smaller steps have covered."""
    if tensor.numel() < 2:
        return False
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _end_writes(tensor: torch.Tensor, host: torch.Tensor, is_copy: bool) -> None:
    """Let the device see what the host wrote, and autograd that something was."""
    _backend.C.memory.check_host_view(tensor)
    if is_copy:
        with torch.no_grad():
            tensor.copy_(host)
    elif not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
