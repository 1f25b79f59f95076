"""Backplane's Python runtime: what a backend package built with the SDK needs at run time, and tools for its authors.

Importing it is cheap and loads no torch. The device module itself is ``torch_backplane.device``; a backend package
registers it as ``torch.<device>``.
"""

from __future__ import annotations

from backplane_sdk import CORE_PROTOCOL, __version__

__all__ = ["CORE_PROTOCOL", "__version__"]
