"""What a module that Inductor wrote calls when it is loaded: text becomes a kernel that can be called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_backplane import _backend

_LIBRARY = ["math.bpc", "special.bpc", "philox.bpc", "generated.bpc"]


def generated_kernel(
    async_compile: Any,
    name: str,
    text: str,
    *,
    pointers: int,
    values: int,
    written: int,
    per_item: int,
    extents: Sequence[tuple[int, int, bool]],
    reports: bool,
    device: int,
) -> Any:
    """A kernel, or a future of Inductor's that becomes it when the module has been read whole.

    Args:
        async_compile: Inductor's ``AsyncCompile``; its threads compile.
        name: for messages.
        text: of ``BP_KERNEL(generated, ...)``.
        pointers: how many tensors a call takes.
        values: how many numbers follow them.
        written: bit i says that the kernel writes tensor i.
        per_item: BP_PER_ITEM.
        extents: what the number of groups is the product of: a length, or the number of the call that is one; and
            whether a group takes a tile of it.
        reports: the kernel tells of places that are out of range.
        device: the index of the one that it is compiled for first.

    Raises:
        RuntimeError: with the compiler's log, from the future.
    """
    kernel = _backend.C.modules.generated_kernel(
        name, text, _LIBRARY, per_item, pointers, values, written, reports, list(extents)
    )

    def compiled() -> Any:
        try:
            kernel.prepare(device)
        except RuntimeError as error:
            raise RuntimeError(
                f'{error}\nbackend="aot_eager" of torch.compile runs without kernels of its own'
            ) from error
        return kernel

    return async_compile.submit(compiled)
