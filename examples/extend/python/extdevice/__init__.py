"""extdevice: the SDK's simulated device with every part of the core replaced that can be, for examples and tests."""

from torch_backplane import _setup

_setup.setup(__name__)

from torch_backplane.device import *  # noqa: E402, F403
