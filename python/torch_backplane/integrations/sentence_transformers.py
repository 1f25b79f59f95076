"""Sentence Transformers: the default device of its four kinds of models. Its trainers are those of Transformers."""

from __future__ import annotations

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration

integration = Integration("sentence-transformers", tried="~=6.2.0")

# With several processes, the device of the rank.
integration.words(f"models go to {_backend.device}", "sentence_transformers.util.environment: get_device_name")
integration.words(
    "start_multi_process_pool() takes all devices",
    "sentence_transformers.base.model: BaseModel.start_multi_process_pool",
)
# Of its two algorithms, the one with fewer, larger operators.
integration.words(
    "community_detection() works on the device",
    "sentence_transformers.util.retrieval: community_detection",
)
