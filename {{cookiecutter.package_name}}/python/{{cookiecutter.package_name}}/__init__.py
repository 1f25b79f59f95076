"""The device ``{{ cookiecutter.device_name }}`` for PyTorch.

``import {{ cookiecutter.package_name }}`` brings it into torch, and so does ``import torch`` alone.
"""


def _autoload() -> None:
    """Called by ``import torch`` (entry point ``torch.backends``). Above the imports, because those may call it."""
    from torch_backplane import _setup

    _setup.autoload(__name__)


from torch_backplane import _setup

_setup.setup(__name__)  # imports torch

from torch_backplane.device import *
from torch_backplane.device import __getattr__
from torch_backplane.paths import include_paths, library_paths

# Last: a development build looks over what has been registered (docs/lint-ops.md of torch-backplane).
_setup.check_registrations(__name__)
