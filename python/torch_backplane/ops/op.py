"""An operator as an object: registrations are checked first, and each affects one device."""

from __future__ import annotations

import functools
import importlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from torch_backplane import _backend, compat
from torch_backplane.ops import autocast, devices, factory, formula, host, missing, registry, schema, signature
from torch_backplane.ops.library import Library
from torch_backplane.ops.strict import OperatorWarning

__all__ = ["Op"]

_lock = threading.RLock()


class Op:
    """An operator: called as a function, and extended by its methods.

    Made by :func:`torch_backplane.ops.custom_op`, or for any operator that exists by :func:`torch_backplane.ops.get`.
    Its methods call ``torch.library`` after checks. As a context manager, it is destroyed at the block's end.

    Attributes:
        name: ``"vendor::name"``, or with its overload ``"vendor::name.overload"``.
        overload: the ``OpOverload``, ``torch.ops.vendor.name.default``.
    """

    def __init__(self, name: str, overload: Any, definition: Any = None, library: Any = None) -> None:
        self.name = name
        self.overload = overload
        self._definition = definition  # torch.library.CustomOpDef: it owns the operator; None for other operators
        self._owned = library  # or this does
        self._library: Library | None = library
        # By device type. What torch.library.custom_op registered for a device keeps no name of its function.
        has_default = definition is not None and None in definition._backend_fns
        self._functions: dict[str, Callable[..., Any]] = {devices.DEFAULT: definition._init_fn} if has_default else {}
        self._fake: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None
        self._casts: dict[str, tuple[torch.dtype | None, Library]] = {}
        self._off: dict[str, Library] = {}
        self._selects = False
        self.__name__ = name.partition("::")[2].replace(".", "_")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator through the dispatcher."""
        return self.overload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<operator {self.overload._schema}>" if self.defined else f"<operator {self.name}, destroyed>"

    def __enter__(self) -> Op:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.destroy()

    def __reduce__(self) -> Any:
        """By its name: a model that holds it can be copied and saved."""
        return importlib.import_module("torch_backplane.ops").get, (self.name,)

    @property
    def schema(self) -> Any:
        """The operator's schema."""
        return self.overload._schema

    @property
    def defined(self) -> bool:
        """Whether it has not been destroyed."""
        return not isinstance(self.overload, _Destroyed)

    # Kernels

    def register_kernel(
        self, device_types: devices.DeviceTypes = None, function: Callable[..., Any] | None = None, /
    ) -> Any:
        """Register a kernel for each of the given devices separately: one can be replaced later without the others.

        Args:
            device_types: ``"cpu"``, a list of device types, ``"default"`` for every device without a kernel; None is
                the vendor's device.
            function: the kernel. Without it, the result is a decorator.

        Returns:
            The function as it was.

        Raises:
            ValueError: there is no such device type; the operator is a composite one and has no formula.
            TypeError: the function does not match the schema.
        """
        if function is None:
            return functools.partial(self.register_kernel, device_types)
        names = devices.device_types(device_types)
        signature.check(self.schema, function)
        kernel = host.bind(function, self.schema, schema.mutated(self.schema))
        with _lock:
            for device in names:
                self._check_selectable(device)
                formula.check_not_cut_off(self.name, device, "Register the formula first, by register_autograd")
                self._warn_of_second(device, function)
            for device in names:
                self._register(device, kernel)
                self._functions[device] = function
        return function

    def reference(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Register the CPU's kernel: the reference of :meth:`verify`, which the fallback also runs."""
        self.register_kernel("cpu", function)
        return function

    @contextmanager
    def set_kernel_enabled(self, device_type: str | None = None, enabled: bool = True) -> Iterator[None]:
        """Disable a device's kernel, or enable it again, for a block: as if it had not been registered.

        Then the kernel for ``"default"`` runs, if there is one, or on the vendor's device the CPU fallback.

        Args:
            device_type: None is the vendor's device.
            enabled: False disables the kernel.

        Raises:
            ValueError: the device has no kernel.
        """
        device = devices.device_types(device_type)[0]
        if device == devices.DEFAULT or not registry.has_kernel(self.name, devices.key_of(device)):
            raise ValueError(f"{self.name} has no kernel for {device} to switch")
        before = device not in self._off
        self._switch(device, enabled)
        try:
            yield
        finally:
            self._switch(device, before)

    # Other registrations of PyTorch

    def register_fake(self, function: Callable[..., Any] | None = None, /, *, allow_override: bool = True) -> Any:
        """Register how shapes, dtypes and devices of results are computed, for ``torch.compile`` and other tracing.

        Args:
            function: as for ``torch.library.register_fake``. Without it, the result is a decorator.
            allow_override: False refuses if there is one already.

        Raises:
            TypeError: the function does not match the schema.
            RuntimeError: there is one already, and ``allow_override`` is False.
        """
        if function is None:
            return functools.partial(self.register_fake, allow_override=allow_override)
        signature.check(self.schema, function, "fake")
        with _lock, self._registering():
            if self._definition is not None and self._fake is not None and not allow_override:
                raise RuntimeError(f"{self.name} has a fake already: it is at {signature.site(self._fake)}")
            options: dict[str, Any] = {"lib": self._library_to_add(), "allow_override": allow_override}
            torch.library.register_fake(self.name, function, _stacklevel=2, **options)
            self._fake = function
        return function

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
        output_differentiability: Sequence[bool] | None = None,
    ) -> None:
        """Register the formula of the gradient, for all devices.

        Args:
            backward: as for ``torch.library.register_autograd``: ``backward(ctx, *gradients)``.
            setup_context: ``setup_context(ctx, inputs, output)`` saves what backward needs; an operator with
                keyword-only arguments gets ``setup_context(ctx, inputs, keyword_only_inputs, output)``.
            output_differentiability: for each output, whether it has a gradient.

        Raises:
            ValueError: the operator has an autograd kernel already; ``output_differentiability`` does not fit.
            TypeError: ``setup_context`` has other parameters.
            RuntimeError: the operator writes an argument, and so cannot have a formula.
        """
        found = self.schema
        with _lock:
            elsewhere = ["AutogradPrivateUse1"]
            if self._definition is None and self._backward is None:
                elsewhere += ["Autograd", "AutogradCPU", "AutogradCUDA"]
            formula.check_free(self.name, elsewhere)
            formula.check_setup_context(self.name, found, setup_context)
            setup = formula.with_constant_outputs(self.name, found, setup_context, output_differentiability)
            if self._backward is not None and not signature.same(self._backward, backward):
                self._warn(
                    f"{self.name} has a formula for its gradient already: it is at {signature.site(self._backward)}, "
                    f"and the one at {signature.site(backward)} takes its place"
                )
            with self._registering():
                library = self._library_to_add()
                torch.library.register_autograd(self.name, backward, setup_context=setup, lib=library)
            self._backward = backward

    def register_vmap(self, function: Callable[..., Any] | None = None, /) -> Any:
        """Register how ``torch.vmap`` batches the operator; without, it is called once for each element.

        Args:
            function: as for ``torch.library.register_vmap``: ``function(info, in_dims, *args, **kwargs)`` returns the
                result and its batched dimension. Without it, the result is a decorator.
        """
        if function is None:
            return self.register_vmap
        with _lock, self._registering():
            torch.library.register_vmap(self.name, function, lib=self._library_to_add())
        return function

    def register_autocast(self, device_type: str | None = None, dtype: torch.dtype | None = None) -> None:
        """Let autocast cast the operator's tensors, keyword arguments included: one rule for a device.

        Args:
            device_type: whose tensors, and in whose regions; None is the vendor's device.
            dtype: None is the dtype of the region, ``torch.autocast(..., dtype=...)``.

        Raises:
            ValueError: the device has another rule; the operator writes an argument, which would be a cast copy.
        """
        device = devices.device_types(device_type)[0]
        key = autocast.key_of(device)
        if written := schema.mutated(self.schema):
            raise ValueError(
                f"{self.name} writes {', '.join(written)}: autocast would cast it, and what is written be lost"
            )
        with _lock:
            if device in self._casts:
                if self._casts[device][0] == dtype:
                    return  # its module has been loaded again
                what = self._casts[device][0] or "the region's dtype"
                raise ValueError(f"{self.name} has a rule for autocast on {device} already: it casts to {what}")
            if site := registry.site_of(self.name, key):
                raise ValueError(f"{self.name} has a rule for autocast on {device} already, registered at {site}")
            library = Library(self.name.partition("::")[0], "IMPL")
            kernel = autocast.cast_kernel(self.overload, device, dtype)
            library.impl(self._bare_name, kernel, key, with_keyset=True)
            self._casts[device] = (dtype, library)

    def register_effect(self, effect: Any = "ordered") -> None:
        """Declare an effect that the schema does not have, so that a compiler keeps every call, and their order.

        Args:
            effect: ``"ordered"``, a ``torch._library.effects.EffectType``, or None to remove it.
        """
        if effect == "ordered":
            from torch._library.effects import EffectType

            effect = EffectType.ORDERED
        self._own_library()._register_effectful_op(self.name, effect)

    def verify(self, samples: Any, **options: Any) -> Any:
        """Check the operator against its CPU reference and PyTorch's rules: :func:`torch_backplane.testing.check_op`.

        Args:
            samples: calls of the operator, as there.
            options: as there.
        """
        return importlib.import_module("torch_backplane.testing").check_op(self, samples, **options)

    def destroy(self) -> None:
        """Remove the operator and free its name; of an operator that C++ defined, remove what was added to it."""
        with _lock:
            for library in [*self._off.values(), *(library for _, library in self._casts.values())]:
                library.destroy()
            if self._library is not None:
                self._library.destroy()
            if self._definition is not None:
                compat.destroy_custom_op(self.name)
            if self._definition is not None or self._owned is not None:
                self.overload = _Destroyed(self.name)
            self._definition = self._library = self._owned = self._fake = self._backward = None
            self._selects = False
            for kept in (self._functions, self._casts, self._off):
                kept.clear()

    # Private

    @property
    def _bare_name(self) -> str:
        return self.name.partition("::")[2]

    @contextmanager
    def _registering(self) -> Iterator[None]:
        """Suppress torch's warning of an override, since ours came before, and clear what tracing has cached."""
        with compat.overriding():
            yield
        registry.forget_dispatch(self.name)

    def _own_library(self) -> Library:
        """The library for registrations outside of torch's definition."""
        if self._library is None:
            self._library = Library(self.name.partition("::")[0], "IMPL")
            missing.explain_missing_kernels(self.overload)
        return self._library

    def _library_to_add(self) -> Library | None:
        """What torch.library's functions register with; torch's definition takes care of itself."""
        return self._own_library() if self._definition is None else None

    def _register(self, device: str, kernel: Callable[..., Any]) -> None:
        # One device a call: torch's functions take several, and share one variable between their kernels.
        where = None if device == devices.DEFAULT else device
        with self._registering():
            torch.library.register_kernel(self.name, where, kernel, lib=self._library_to_add())
            if where is not None and not self._selects and factory.is_factory(self.schema):
                select = factory.select(self.overload)
                self._own_library().impl(self._bare_name, select, "BackendSelect", with_keyset=True)
                self._selects = True
        if device in self._off:  # it stays disabled
            self._switch(device, True)
            self._switch(device, False)

    def _check_selectable(self, device: str) -> None:
        if device == devices.DEFAULT or not factory.is_factory(self.schema) or factory.device_argument(self.schema):
            return
        raise ValueError(
            f"{self.name} has no tensor among its arguments, so `device: torch.device` must choose the kernel for "
            f"{device}: add it, or register for 'default'. The schema is {self.schema}"
        )

    def _warn_of_second(self, device: str, function: Callable[..., Any]) -> None:
        key = devices.key_of(device)
        first = self._functions.get(device)
        if not registry.has_kernel(self.name, key) or (first is not None and signature.same(first, function)):
            return
        site = signature.site(first) if first is not None else registry.site_of(self.name, key)
        self._warn(
            f"{self.name} has a kernel for {device} already: it is at {site}, and the one at "
            f"{signature.site(function)} takes its place"
        )

    def _switch(self, device: str, on: bool) -> None:
        with _lock:
            if on:
                if library := self._off.pop(device, None):
                    library.destroy()
            elif device not in self._off:
                library = Library(self.name.partition("::")[0], "IMPL")
                compat.override_kernel(library, self._bare_name, self._without(device), devices.key_of(device))
                self._off[device] = library

    def _without(self, device: str) -> Callable[..., Any]:
        """What a call runs while a device's kernel is disabled."""
        found = self.schema
        default = self._functions.get(devices.DEFAULT)
        if default is not None:
            return host.bind(default, found, schema.mutated(found))

        def call(*args: Any, **kwargs: Any) -> Any:
            if device == _backend.device:
                return _backend.C.fallback.run(found.name, found.overload_name, args, kwargs)
            raise NotImplementedError(f"{self.name} has a kernel for {device}, which is switched off")

        return call

    @staticmethod
    def _warn(text: str) -> None:
        warnings.warn(text, OperatorWarning, stacklevel=4)


class _Destroyed:
    """Stands for the overload of a destroyed operator."""

    def __init__(self, name: str) -> None:
        self._text = f"{name} has been destroyed: define it again, or get what has its name now by ops.get('{name}')"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(self._text)

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(self._text)
