"""Lightning's Fabric as a separate library, which ``pytorch-lightning`` installs as well."""

from __future__ import annotations

import importlib.metadata

from torch_backplane.integrations._library import Integration
from torch_backplane.integrations._lightning_fabric import add_fabric


def _distribution() -> str:
    try:
        importlib.metadata.version("lightning-fabric")
    except importlib.metadata.PackageNotFoundError:
        return "pytorch-lightning"
    return "lightning-fabric"


integration = Integration(_distribution(), "~=2.6.0")
add_fabric(integration, "lightning_fabric")
