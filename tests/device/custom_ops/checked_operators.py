"""``operators(namespace, device_type)``: operators made of the parts that a test gives, and what checks them."""

import itertools
from contextlib import contextmanager

import torch

from torch_backplane.compat import override_kernel
from torch_backplane.testing import check_op

_numbers = itertools.count()


class Operator:
    """An operator of a test: right in all, until a part is given that is not."""

    def __init__(self, lib, name, schema, **parts):
        self.lib, self.device_type = lib, name
        self.name = f"{lib.ns}::op_{next(_numbers)}"
        lib.define(self.name.partition("::")[2] + schema, tags=parts.pop("tags", ()))
        for part, value in parts.items():
            getattr(self, part)(value)

    @property
    def overload(self):
        return getattr(getattr(torch.ops, self.lib.ns), self.name.partition("::")[2]).default

    def impl(self, function, *keys):
        for key in keys:
            override_kernel(self.lib, self.name.partition("::")[2], function, key)

    def kernel(self, function):
        """The kernel, on the CPU and on the device."""
        self.impl(function, "CPU", "PrivateUse1")

    def on_cpu(self, function):
        self.impl(function, "CPU")

    def on_device(self, function):
        self.impl(function, "PrivateUse1")

    def fake(self, function):
        torch.library.register_fake(self.name, function, lib=self.lib, allow_override=True)

    def formula(self, functions):
        backward, setup_context = functions
        torch.library.register_autograd(self.name, backward, setup_context=setup_context, lib=self.lib)

    def rule(self, function):
        torch.library.register_vmap(self.name, function, lib=self.lib)


@contextmanager
def operators(namespace, device_type):
    """Defines an operator for each call, by a schema and its parts; they are gone when the block ends."""
    with torch.library._scoped_library(namespace, "FRAGMENT") as lib:
        yield lambda schema, **parts: Operator(lib, device_type, schema, **parts)


def failing(op, samples, **options):
    """Which utilities fail, with what text."""
    report = check_op(op, samples, raise_exception=False, **options)
    return {utility: str(result) for utility, result in report.items() if result != "SUCCESS"}


X = torch.linspace(-2, 3, 12).view(3, 4)
ONE = "(Tensor x) -> Tensor"
AOT = {"test_aot_dispatch_static", "test_aot_dispatch_dynamic"}


def square_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def square_backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return 2 * x * grad


SQUARE = {"kernel": lambda x: x * x, "fake": torch.empty_like, "formula": (square_backward, square_setup)}


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return square_backward(ctx, grad)
