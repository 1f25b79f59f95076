"""Which worlds run a check: two or three ranks, each engine, bound to a device or not; most of them are marked long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from world import Kind

DEVICE = "mydevice"
DETAIL = (("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),)
COMPILED = (("MYDEVICE_KERNELS", "wait"),)  # kernels are work of a stream; the fallback waits for the stream


def staged(**options: Any) -> Kind:
    """By the host and Gloo: on every driver."""
    return Kind(DEVICE, engine="staged", **options)


def native(**options: Any) -> Kind:
    """By the driver's own collectives."""
    return Kind(DEVICE, engine="native", **options)


DISCRETE = (("MYDEVICE_OPTIONS", "kind=discrete,strict=on,delay=200"),)
KINDS = {
    "native": (native(), False),
    "native, three": (native(size=3), True),
    "native, bound": (native(device_id=True), True),
    "native, three, bound": (native(size=3, device_id=True), True),
    "native, named": (native(device_id=True, named=True), True),
    "native, DETAIL": (native(env=DETAIL), True),
    "native, discrete": (native(env=DISCRETE), True),
    "staged": (staged(), False),
    "staged, three": (staged(size=3), True),
    "staged, bound": (staged(device_id=True), True),
    "staged, three, bound": (staged(size=3, device_id=True), True),
    "staged, named": (staged(device_id=True, named=True), True),
    "staged, DETAIL": (staged(env=DETAIL), True),
    "staged, discrete": (staged(env=DISCRETE), True),
    "Gloo": (Kind("cpu"), True),
    "Gloo, three": (Kind("cpu", size=3), True),
}
"""Their names, and whether they are long."""


def of_engine(kind: Kind) -> list[Any]:
    """The marks of a test with such a world."""
    return [pytest.mark.requires("collective")] if kind.engine == "native" else []


ENGINES = [pytest.param(make, id=make.__name__, marks=of_engine(make())) for make in (native, staged)]
"""For tests that create separate worlds."""


def cases(
    checks: list[Callable[..., Any]],
    only: Callable[[Kind], bool] = lambda _: True,
    is_long: Callable[[Kind, Callable[..., Any]], bool] = lambda *_: False,
) -> Iterator[Any]:
    """A case for each check in each world of a size that it takes, grouped by world; ``is_long`` marks more as long."""
    for name, (kind, is_long_kind) in KINDS.items():
        if not only(kind):
            continue
        for check in checks:
            fits = kind.size in check.sizes and (kind.named or check.bound in (None, kind.device_id))
            fits = fits and not getattr(check, kind.engine or "gloo")
            alone = (name in ("native, three", "staged, three") and 2 not in check.sizes) or (
                name in ("native, bound", "staged, bound") and check.bound
            )
            if fits:
                marks = [pytest.mark.long] if is_long(kind, check) or (is_long_kind and not alone) else []
                marks += of_engine(kind)
                yield pytest.param(kind, check, id=f"{name}-{check.__name__}", marks=marks)
