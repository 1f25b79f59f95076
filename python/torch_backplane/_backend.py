"""The one backend of this process: torch has a single PrivateUse1 slot, so this is module state and not an object."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from torch_backplane import _native


class _NotLoaded:
    """In place of the native module until a backend package has been imported."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(
            "no backend is loaded: import the vendor's package first, for example `import mydevice`. "
            "If it is installed and failed to load, that import raises the reason."
        )


package: str = ""
"""Name of the Python package that took the PrivateUse1 slot; empty if none did."""

device: str = ""
"""The device's name, as in ``torch.device(name)``."""

build: Any = None
"""The package's ``_build_info`` module."""

C: _native.Module = cast("_native.Module", _NotLoaded())
"""The native module ``<package>._C``."""

autoload_later: list[str] | None = None
"""Packages whose autoload waits until ``torch_backplane.ops``, which their operators need, has been imported."""


def loaded() -> bool:
    """Whether the native code of a backend package is in this process."""
    return not isinstance(C, _NotLoaded)


def a_device() -> str:
    """The device's name with its article, as in "an acme device" and "a unicorn device"."""
    return f"{'an' if re.match('(?!uni|us[ei]|eu|one)[aeiou]', device) else 'a'} {device}"


def env_name(name: str) -> str:
    """The environment variable of this backend: ``env_name("DRIVER")`` is ``MYDEVICE_DRIVER``."""
    return f"{device.upper()}_{name}"
