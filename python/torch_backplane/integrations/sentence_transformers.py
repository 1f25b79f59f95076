"""Sentence Transformers: the default device of its four kinds of models. Its trainers are those of Transformers."""

from __future__ import annotations

from typing import Any

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("sentence-transformers", tried="~=6.2.0")


@integration.after("sentence_transformers.util.environment")
def default_device(module: Any, patch: Patch) -> str:
    """With several processes, that of the rank."""
    patch.words(module, "get_device_name", cuda=_backend.device)
    return f"models go to {_backend.device}"


@integration.after("sentence_transformers.base.model")
def pools(module: Any, patch: Patch) -> str:
    """A process for each device."""
    patch.words(module.BaseModel, "start_multi_process_pool", cuda=_backend.device)
    return "start_multi_process_pool() takes all devices"


@integration.after("sentence_transformers.util.retrieval")
def clusters(module: Any, patch: Patch) -> str:
    """The way with fewer, larger operators."""
    patch.words(module, "community_detection", cuda=_backend.device)
    return "community_detection() works on the device"
