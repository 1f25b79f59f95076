"""Kernels of Triton on the device: ``make test-triton``, which repeats them for groups of several items."""

import os

os.environ["MYDEVICE_KERNELS"] = "strict"  # before torch, and so before the backend
