"""Launches of compiled Triton kernels: which of Triton's arguments become pointers and numbers of the driver's kernel.

A launch is made by ``backend/bindings/triton_launcher.cpp``, with a plan of the arguments that is written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_backplane import _backend
from torch_backplane.inductor.runtime import kernel_object

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.messages import Message

Path = tuple[int, ...]
"""Of an argument, in nested tuples."""


@dataclass(frozen=True)
class Loaded:
    """A compiled kernel. Triton hands it to the launcher, or, of a kernel that has no messages, the kernel alone."""

    kernel: Any
    messages: list[Message]


def compile_ttir(name: str, facts: dict[str, Any]) -> tuple[str, int]:
    """Compile a module of TTIR for the current device: the letters of its arguments, and its local bytes."""
    return _ttir_kernel(name, facts, "").ttir_facts()


def _ttir_kernel(name: str, facts: dict[str, Any], parameters: str) -> Any:
    pointers = parameters.count("p")
    hints = facts["num_warps"], facts["num_stages"]
    return _backend.C.modules.ttir_kernel(
        name, facts["ttir"], facts["triton"], *hints, max(1, pointers), len(parameters) - pointers
    )


def in_dialect(facts: dict[str, Any]) -> dict[str, Any]:
    """The text of a compiled kernel, with the arguments of ``kernel_object`` (``torch_backplane.inductor.runtime``)."""
    numbers = len(facts["arguments"]) - facts["arguments"].count("ptr")
    return {
        "text": facts["text"],
        "pointers": facts["written"].bit_length(),
        "values": numbers + 3,
        "written": facts["written"],
        "per_item": 1,
        "extents": [(0, numbers + axis, 1) for axis in range(3)],
        "reports": False,
    }


def load(name: str, binary: bytes) -> Loaded:
    """The kernel of a compiled text, not on a device yet."""
    facts = json.loads(binary)
    if "ttir" in facts:
        return Loaded(_ttir_kernel(name, facts, facts["parameters"]), [])
    kernel, messages = kernel_object(name, **in_dialect(facts)), facts["messages"]
    if not messages:
        return Loaded(kernel, [])
    from torch_backplane.triton.lowering.messages import Message

    return Loaded(kernel, [Message(**message) for message in messages])


def launcher(source: Any, metadata: Any) -> Callable[..., None]:
    """Triton's launcher of a kernel.

    It is called with the grid, the stream, the loaded kernel, metadata, hooks, and the arguments of the user's
    function. The kernel runs on the current stream of its tensors' device.
    """
    signature = list(source.signature.values())
    descriptors = {
        i: kind for i, kind in enumerate(signature) if isinstance(kind, str) and kind.startswith("tensordesc")
    }
    plan = [one for i, kind in enumerate(signature) for one in _plan((i,), kind)]
    names = list(source.signature)
    pointers = [names[path[0]] for path, kind in plan if kind == "p"]
    accesses = list(zip(pointers, metadata.accesses, strict=True))  # for the stream sanitizer
    if metadata.messages:
        plan.append(((len(signature),), "p"))
    launch = _backend.C.modules.triton_launcher(plan, accesses)

    def launch_with(*call: Any) -> None:
        head, kernel, rest = call[:4], call[4], list(call[5:])
        for i in descriptors:
            rest[4 + i] = decompose(rest[4 + i])
        if isinstance(kernel, Loaded):
            from torch_backplane.triton import logs

            with logs.reading(metadata.name, kernel.messages, rest[4:]) as log:
                launch(*head, kernel.kernel, *rest, log)
        else:
            launch(*head, kernel, *rest)

    return launch_with if descriptors or metadata.messages else launch


def _plan(path: Path, kind: Any) -> Iterator[tuple[Path, str]]:
    """The arguments that are no constants: p (a pointer), i (an integer), f or d (a float of 32 or 64 bits)."""
    if isinstance(kind, tuple):
        for i, one in enumerate(kind):
            yield from _plan((*path, i), one)
    elif kind.startswith("tensordesc"):
        yield (*path, 0), "p"
        rank = kind[kind.index("[") + 1 : kind.index("]")].count(",") + 1
        yield from (((*path, 1 + i), "i") for i in range(_numbers_of_descriptor(rank)))
    elif kind != "constexpr":
        yield path, "p" if kind[0] == "*" else "d" if kind in ("fp64", "f64") else "f" if kind[0] in "fb" else "i"


def decompose(descriptor: Any) -> tuple[Any, ...]:
    """A host's tensor descriptor: its base, then the numbers that the kernel takes."""
    try:
        from triton.backends.driver import decompose_descriptor
    except ImportError:  # until 3.8
        rounds = [descriptor.round_f32_to_tf32] if hasattr(descriptor, "round_f32_to_tf32") else []
        shape, strides = descriptor.shape, descriptor.strides
        return (descriptor.base, *shape, *strides, descriptor.padding == "nan", *rounds, *shape, *strides)
    return tuple(decompose_descriptor(descriptor))


def _numbers_of_descriptor(rank: int) -> int:
    from triton.tools.tensor_descriptor import TensorDescriptor

    rounds = "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__
    return 4 * rank + 1 + rounds
