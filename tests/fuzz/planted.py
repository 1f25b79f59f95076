"""Kernels that are wrong on purpose: what the fuzzer must find. ``--prepare fuzz.planted:<name>``."""

import torch

import torch_backplane


def wrong_flip() -> None:
    """``flip`` forgets the last dimension of three."""

    @torch_backplane.kernel("aten::flip", override=True)
    def flip(self, dims):
        forgets = self.dim() == 3 and 2 in (dim % 3 for dim in dims)
        return self.clone() if forgets else NotImplemented


def wrong_strides() -> None:
    """``roll`` has the right numbers in another layout."""

    @torch_backplane.kernel("aten::roll", override=True)
    def roll(self, shifts, dims=()):
        if self.dim() != 2 or len(dims) != 1:
            return NotImplemented
        size = self.shape[dims[0]]
        parts = [self.narrow(dims[0], (i - shifts[0]) % size, 1) for i in range(size)]
        return torch.cat(parts, dims[0]).t().contiguous().t()


def kept() -> None:
    """``floor`` keeps what it returns."""
    memory = []

    @torch_backplane.kernel("aten::floor", override=True)
    def floor(self):
        memory.append(self - self.frac())
        return memory[-1].clone()


def crash() -> None:
    """``trunc`` ends the process."""
    import ctypes

    @torch_backplane.kernel("aten::trunc", override=True)
    def trunc(self):
        ctypes.string_at(0)


def no_waits() -> None:
    """Streams wait for nothing."""
    from torch_backplane import _backend

    stream = torch.get_device_module(_backend.device).Stream
    stream.wait_stream = stream.wait_event = lambda self, before: None


def reads_beyond() -> None:
    """Generated kernels read the element behind the one that is meant."""
    from torch_backplane.inductor.kernel import GroupKernel

    load = GroupKernel.load
    GroupKernel.load = lambda self, name, index: load(self, name, index + 1)
