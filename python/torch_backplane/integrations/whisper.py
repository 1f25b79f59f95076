"""Whisper of OpenAI: ``load_model()`` and the command select the device, which they do not know."""

from __future__ import annotations

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration

integration = Integration("openai-whisper", tried="==20250625")

integration.words(f"load_model() selects {_backend.device}", "whisper: load_model", "whisper.transcribe: cli")
