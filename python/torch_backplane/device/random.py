"""Random numbers: the default generator of each device. Nothing here touches a device: generators live on the host."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from torch_backplane import _backend
from torch_backplane.device._utils import Device, _get_device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _get_generator(device: Device) -> torch.Generator:
    """The default generator of a device. torch looks up this name."""
    return _backend.C.random.default_generator(_get_device_index(device, optional=True))


def _all() -> list[torch.Generator]:
    return [_get_generator(index) for index in range(_backend.C.devices.count())]


def get_rng_state(device: Device = None) -> Tensor:
    """State of a device's default generator, as a ByteTensor on the CPU.

    Args:
        device: the device; None is the current one.
    """
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices, by index."""
    return [generator.get_state() for generator in _all()]


def set_rng_state(new_state: Tensor, device: Device = None) -> None:
    """Set the state of a device's default generator.

    Args:
        new_state: the result of :func:`get_rng_state`.
        device: the device; None is the current one.
    """
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of the devices, by index."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator. Silently ignored if there is no device.

    Args:
        seed: any integer that fits 64 bits.
    """
    if _backend.C.devices.count() > 0:
        _get_generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; ``torch.manual_seed`` does so, too.

    Silently ignored if there is no device.
    """
    for generator in _all():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a random number. Silently ignored if there is no device."""
    if _backend.C.devices.count() > 0:
        _get_generator(None).seed()


def seed_all() -> None:
    """Seed the generators of all devices with one random number."""
    generators = _all()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _get_generator(None).initial_seed()


def _get_rng_state_offset(device: Device = None) -> int:
    """Offset of a device's default generator in its Philox sequence."""
    return int(_get_generator(device).get_offset())


def _set_rng_state_offset(offset: int, device: Device = None) -> None:
    """Move a device's default generator in its Philox sequence."""
    _get_generator(device).set_offset(offset)
