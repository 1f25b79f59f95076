"""Convolutions in channels_last: torch's fake tensors only know which of torch's own devices keep the format."""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from torch_backplane.compat import replaces

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def install(name: str) -> None:
    """Give a fake convolution of the device the format of a real one (backplane/convolution.h).

    Seen on 2.11 to 2.15; unnecessary once torch asks the device.
    """

    @replaces(torch._C, "_conv_determine_backend_memory_format")
    def format_of(known: Any, input: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if input.device.type != name:
            return known(input, weight, backend)
        last = _LAST.get(weight.dim(), torch.contiguous_format)
        is_last = last in (suggest_memory_format(input), suggest_memory_format(weight))
        return last if is_last else torch.contiguous_format
