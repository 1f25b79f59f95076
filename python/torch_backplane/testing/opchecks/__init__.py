"""The utilities of :func:`torch_backplane.testing.check_op`, by name, in the order in which they run."""

from __future__ import annotations

from torch_backplane.testing.opchecks.batching import vmap
from torch_backplane.testing.opchecks.call import Utility
from torch_backplane.testing.opchecks.gradients import gradcheck
from torch_backplane.testing.opchecks.layouts import noncontiguous
from torch_backplane.testing.opchecks.registration import aot_dynamic, aot_static, autograd_registration, fake, schema
from torch_backplane.testing.opchecks.values import autocast, cpu_reference, empty

UTILITIES: dict[str, Utility] = {
    "test_schema": schema,
    "test_cpu_reference": cpu_reference,
    "test_noncontiguous": noncontiguous,
    "test_empty": empty,
    "test_autograd_registration": autograd_registration,
    "test_gradcheck": gradcheck,
    "test_faketensor": fake,
    "test_aot_dispatch_static": aot_static,
    "test_aot_dispatch_dynamic": aot_dynamic,
    "test_vmap": vmap,
    "test_autocast": autocast,
}
"""No name is the beginning of another: torch finds a utility by the beginning of a test's name."""
