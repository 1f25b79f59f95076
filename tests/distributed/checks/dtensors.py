"""The conformance kit's suite ``dtensor``, in ranks whose device has a wrong kernel."""

from __future__ import annotations

import torch
from rank import Rank
from torch.distributed.device_mesh import DeviceMesh

from backplane_tools.conformance.dtensor_rank import Run
from backplane_tools.conformance.suites.ops import OpsSuite


def a_wrong_kernel(w: Rank) -> list[str]:
    """The outcome's status and message."""
    meshes = tuple(DeviceMesh(kind, list(w.ranks)) for kind in ("cpu", w.device.type))
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("sinc", lambda x: x.cpu().sinc().to(x.device) * 1.01, "PrivateUse1")
        run = Run(OpsSuite().entries["sinc"], torch.float32, 0, meshes, w.device, lambda _: None)
        outcome = run.outcome()
    return [outcome.status, outcome.message]
