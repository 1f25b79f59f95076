"""Lightning by its older name: the Trainer chooses the device. Its parts of Fabric are in ``lightning_fabric``."""

from __future__ import annotations

from torch_backplane.integrations._library import Integration
from torch_backplane.integrations._lightning_trainer import add_trainer

integration = Integration("pytorch-lightning", "~=2.6.0")
add_trainer(integration, "pytorch_lightning")
