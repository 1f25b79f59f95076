"""``Operators(namespace)``: operators that a test defines through torch, and that are gone when it ends."""

import torch
from torch._library import custom_ops
from torch._library.simple_registry import singleton


class Operators:
    """A namespace of torch.ops; a context manager.

    ``operators.add`` and the like are what ``torch.ops.<namespace>`` has.
    """

    def __init__(self, namespace):
        self.namespace = namespace
        self.library = torch.library.Library(namespace, "FRAGMENT")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for name in [name for name in custom_ops.OPDEFS if name.startswith(f"{self.namespace}::")]:
            custom_ops.OPDEF_TO_LIB.pop(name)._destroy()
            del custom_ops.OPDEFS[name]
        self.library._destroy()
        for name in [name for name in singleton._data if name.startswith(f"{self.namespace}::")]:
            del singleton._data[name]  # torch before 2.13 keeps a fake that it has refused

    def __getattr__(self, name):
        return getattr(getattr(torch.ops, self.namespace), name)

    def define(self, schema, *, tags=(), **kernels):
        """An operator by its schema, with kernels by dispatch key; its overload."""
        name = schema.partition("(")[0]
        self.library.define(schema, tags=tags)
        for key, kernel in kernels.items():
            self.library.impl(name, kernel, key)
        packet, _, overload = name.partition(".")
        return getattr(getattr(self, packet), overload or "default")

    def custom(self, name, function, *, mutates_args=(), **options):
        """``torch.library.custom_op``; a CustomOpDef."""
        return torch.library.custom_op(f"{self.namespace}::{name}", function, mutates_args=mutates_args, **options)
