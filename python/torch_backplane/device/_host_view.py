"""Device memory as a CPU tensor, for a ``with`` block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import torch

from torch_backplane import _backend


@contextlib.contextmanager
def host_view(tensor: torch.Tensor, mode: Literal["r", "r+"] = "r+") -> Iterator[torch.Tensor]:
    """View a device tensor from the host, as a CPU tensor of the same sizes and dtype.

    If the host can access the device's memory (the driver has a coherent ``bp.host_view``), the CPU tensor aliases it:
    nothing is copied, strides are the tensor's own, and the tensor's storage cannot be resized while the CPU tensor, or
    a numpy array over it, is alive. Otherwise it is a copy, with the strides of ``torch.empty_like``, that is written
    back at the end.

    Order: the block begins when the work of the current stream of the tensor's device is complete. All work that is
    queued after the block, on any stream, sees what the host has written. In the block the device must neither read
    nor write the memory. Several threads may have views, of different memory.

    The CPU tensor must not be used after the block: a copy no longer reaches the device, an aliased view is no longer
    ordered with its work.

    If the block raises, what was written until then is kept, as in any loop over a CPU tensor.

    Autograd: the CPU tensor has no gradient. With ``mode="r+"`` the tensor counts as changed in place, so that a
    backward pass which needs its old values raises.

    Args:
        tensor: a dense tensor on the device.
        mode: ``"r+"`` reads and writes. ``"r"`` reads: nothing is written back, and the end of the block raises if
            torch has written to the CPU tensor. (torch has no read-only tensors: without a copy, the device's memory
            has changed.)

    Raises:
        ValueError: another mode, or a tensor on another device.
        NotImplementedError: a tensor that is sparse, nested, quantized or fake, or one that wraps others.
        RuntimeError: the tensor requires grad, and grad mode is on; with ``"r+"``, it is an inference tensor outside of
            inference mode, or its elements share memory; it has a lazy conjugate or negative bit; a stream captures a
            graph; with ``"r"``, something was written.
    """
    _check(tensor, mode)
    with torch.inference_mode(False), torch.no_grad():
        if _backend.C.memory.has_host_view():
            host = _backend.C.memory.host_view(tensor)
            is_copy = False
        else:
            host = torch.empty_like(tensor, device="cpu", requires_grad=False).copy_(tensor)
            is_copy = True
        shown = host.detach()  # resize_ and the like change only this one
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
            "host_view: the tensor requires grad, and the host's writes are not recorded: pass tensor.detach(), or "
            "run the block under torch.no_grad()"
        )
    if mode == "r":
        return
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            'host_view: an inference tensor changes only in inference mode: use mode="r", torch.inference_mode(), '
            "or a clone"
        )
    if _may_overlap(tensor):
        raise RuntimeError(
            f"host_view: elements of the tensor share memory (sizes {tuple(tensor.shape)}, strides {tensor.stride()}), "
            'and a write to one would change others: use mode="r", or a clone'
        )


def _may_overlap(tensor: torch.Tensor) -> bool:
    """Whether two elements may share memory: a stride lies within what the dimensions of smaller strides cover."""
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
    """Write the host's changes to the device, and note them for autograd."""
    _backend.C.memory.check_host_view(tensor)
    if is_copy:
        with torch.no_grad():
            tensor.copy_(host)
    elif not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
