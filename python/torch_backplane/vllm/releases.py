"""The releases of vLLM that the plugin is written for, and what the key of vLLM's compilation cache says of it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from packaging.specifiers import SpecifierSet

from torch_backplane import _backend

TRIED = SpecifierSet("~=0.32.0")
INSTALL = 'pip install "torch-backplane[vllm]"'


def check(found: str) -> None:
    """Refuse another release.

    Args:
        found: the version of the installed vLLM.

    Raises:
        ImportError: it is not one of those tried.
    """
    if not TRIED.contains(found.split("+")[0], prereleases=True):
        raise ImportError(
            f"vLLM {found} is installed, and {_backend.device} serves with vLLM {TRIED}: {INSTALL} brings it "
            f"(docs/vllm.md of torch-backplane). VLLM_PLUGINS= with no name runs this vLLM without {_backend.device}",
            name="vllm",
        )


@cache
def cache_key() -> str:
    """What compiled graphs depend on and vLLM does not know: the sources of the plugin, and the device's compiler."""
    from torch_backplane.inductor import registration

    digest = hashlib.sha256(registration.cache_key().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
