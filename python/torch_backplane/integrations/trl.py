"""TRL: its trainers are those of Transformers; what is left asks which chip it is."""

from __future__ import annotations

from torch_backplane.integrations._library import Integration

integration = Integration("trl", tried="~=1.16.0")

# The speed of a chip: None if TRL does not know it, as for such a GPU.
integration.words(
    "the trainers of TRL, through those of Transformers",
    "trl.trainer.utils: get_peak_flops_per_device",
)
