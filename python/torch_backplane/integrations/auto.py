"""Importing this adapts all libraries, also those that are imported already.

``<DEVICE>_INTEGRATIONS`` takes precedence if it is set. Child processes inherit the environment, but have this import
only in their own code.
"""

from __future__ import annotations

import torch  # noqa: F401  (imports the backend)

from torch_backplane import _backend, integrations

if not _backend.loaded():
    raise ImportError(
        "no backend is loaded to adapt libraries to: import the vendor's package first, such as `import mydevice`",
        name=__name__,
    )
integrations.enable()
