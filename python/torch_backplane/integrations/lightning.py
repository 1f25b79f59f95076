"""Lightning: Trainer and Fabric choose the device, with its strategies and its mixed precision."""

from __future__ import annotations

from torch_backplane.integrations._library import Integration
from torch_backplane.integrations._lightning_fabric import add_fabric
from torch_backplane.integrations._lightning_trainer import add_trainer

integration = Integration("lightning", "~=2.6.0")
add_fabric(integration, "lightning.fabric")
add_trainer(integration, "lightning.pytorch")
