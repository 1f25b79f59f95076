"""The legacy tensor types such as ``torch.mydevice.FloatTensor``, which torch itself makes for the CPU and CUDA only.

A type is a name for a dtype, a layout and the device. No tensor has it as its class: ``isinstance`` compares the three.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn

import torch

from torch_backplane import _backend
from torch_backplane.device.storages import LEGACY_NAMES

DTYPES = {f"{name}Tensor": dtype for name, dtype in LEGACY_NAMES.items() if not dtype.is_complex}


class _TensorType(type):
    """Their metaclass, as ``torch.tensortype`` is that of ``torch.FloatTensor``.

    The type's C name is the full one, which ``Tensor.type(torch.mydevice.FloatTensor)`` reads; ``__name__`` is the last
    part, as pickles need it.
    """

    dtype: torch.dtype
    layout: torch.layout

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        return cls.__qualname__

    def __getattr__(cls, name: str) -> Any:
        """What kind of type it is, such as ``is_mydevice``, and a tensor's methods, as ``torch.FloatTensor.add``."""
        kinds = {"is_cuda": False, "is_xpu": False, "is_sparse_csr": False, f"is_{_backend.device}": True}
        kinds["is_sparse"] = cls.layout is torch.sparse_coo
        if name in kinds:
            return kinds[name]
        if name.startswith("__"):
            raise AttributeError(f"type object '{cls.__qualname__}' has no attribute '{name}'", name=name, obj=cls)
        return getattr(torch.Tensor, name)

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise TypeError(f"cannot set '{name}' of the immutable type {cls.__module__}.{cls.__qualname__}")

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), *dir(torch.Tensor)})

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == _backend.device
            and instance.dtype is cls.dtype
            and instance.layout is cls.layout
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Make a tensor of the type on the current device, by torch's own legacy constructor.

        Takes sizes, ``torch.Size``, a sequence or numpy array of data, a storage or a tensor of the same type (whose
        memory is shared), or nothing, and ``device=``, a device of this kind.
        """
        like = torch.empty(0, dtype=cls.dtype, layout=cls.layout, device=_backend.device)
        made: torch.Tensor = like.new(*args, **kwargs)
        return made


def _tensor_type(module: str, name: str, layout: torch.layout) -> _TensorType:
    body = {
        "__module__": module,
        "__qualname__": name,
        "__doc__": f"The legacy name of {DTYPES[name]} tensors of layout {layout}.",
        "dtype": DTYPES[name],
        "layout": layout,
    }
    return _TensorType(f"{module}.{name}", (), body)


def add_to(module: ModuleType) -> None:
    """Make the types, as attributes of the device's module and of its module ``sparse``, where pickles find them."""
    name = f"torch.{_backend.device}"
    sparse = ModuleType(f"{name}.sparse", f"Legacy sparse tensor types of {_backend.device}.")
    made = {short: _tensor_type(name, short, torch.strided) for short in DTYPES}
    # torch has no sparse bool type.
    of_sparse = {s: _tensor_type(sparse.__name__, s, torch.sparse_coo) for s in DTYPES if s != "BoolTensor"}
    vars(module).update(made, sparse=sparse)
    vars(sparse).update(of_sparse)
    sys.modules[sparse.__name__] = sparse
    classes: set[Any] = torch._tensor_classes
    classes.update(made.values(), of_sparse.values())
