"""Importing this arranges all libraries, also those that are imported already.

``<DEVICE>_INTEGRATIONS`` has the last word, where it is set. A process that the program starts sees the environment; of
this import it knows only if its own code has it.
"""

from __future__ import annotations

import torch  # noqa: F401  (imports the backend)

from torch_backplane import _backend, integrations

if not _backend.loaded():
    raise ImportError(
        "no backend is loaded to arrange libraries for: import the vendor's package first, such as `import mydevice`",
        name=__name__,
    )
integrations.enable()
