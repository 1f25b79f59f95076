"""Loads a backend package: checks, native code, names, device module.

Idempotent, re-entrant, in either import order.

``import torch`` and ``import <package>`` each lead to the other, so each entry leaves the work to the outer one:

- ``import torch`` first: torch loads the entry point, which imports the package; its ``setup`` sees a torch that is
  still importing and returns; torch then calls ``_autoload``, which does the work and turns an exception into a
  warning.
- ``import <package>`` first: its ``import torch`` calls ``_autoload``, which sees a package that is still importing and
  returns; the package's ``setup`` then does the work, and an exception is the import's.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, cast

from torch_backplane import CORE_PROTOCOL, __version__, _backend, integrations

if TYPE_CHECKING:
    from torch_backplane._native import Module

_lock = threading.RLock()
_ready = False
_registered = False
_linted = False
_warned: set[str] = set()


def setup(package: str) -> None:
    """Import torch and make ``package``'s device available, or raise what prevents it.

    Args:
        package: the importable name of a package that ``backplane_add_backend()`` built.

    Raises:
        ImportError: built for another torch or another core protocol; a second backend; an explicit driver that cannot
            be loaded; a wrong setting of the fallback.
    """
    with _without_numpy_warning():
        importlib.import_module("torch")
        if not _importing("torch"):
            _load(package)


def check_registrations(package: str) -> None:
    """Check a development build's registrations, as the last step of its import; see docs/lint-ops.md.

    Args:
        package: as for :func:`setup`. While torch is still importing, this does nothing: ``autoload`` will.

    Raises:
        ImportError: a registration is wrong, and ``<DEVICE>_LINT`` or CI makes that an error.
    """
    global _linted
    if not _ready or _linted or _backend.package != package:
        return
    _linted = True
    variable = _backend.env_name("LINT")
    mode = os.environ.get(variable) or _default_lint()
    if mode not in ("off", "warn", "error"):
        raise ImportError(f"{variable}={mode}: it is one of off, warn, error", name=package)
    if mode != "off":
        from torch_backplane.ops.linting import at_import

        at_import(mode)


def _default_lint() -> str:
    if not getattr(_backend.build, "DEVELOPMENT", False):
        return "off"
    return "error" if os.environ.get("CI", "").lower() not in ("", "0", "false") else "warn"


def autoload(package: str) -> None:
    """What ``import torch`` calls. Never raises: if the device cannot be loaded, it warns once and stays unavailable.

    Args:
        package: as for :func:`setup`. After a failure it is removed from ``sys.modules``, so that importing it raises
            the reason.
    """
    if _importing(package):
        return
    if _backend.autoload_later is not None and "torch_backplane.ops" in sys.modules:
        _backend.autoload_later.append(package)
        return
    try:
        with _without_numpy_warning():
            _let_explicit_import_win(package)
            _load(package)
            check_registrations(package)
    except Exception as error:
        sys.modules.pop(package, None)
        if package in _warned:  # two entry points of one package: an old installation beside a new one
            return
        _warned.add(package)
        warnings.warn(
            f"the torch backend '{package}' is installed but unavailable: {error} "
            f"(`import {package}` raises this error; TORCH_DEVICE_BACKEND_AUTOLOAD=0 silences this warning)",
            RuntimeWarning,
            stacklevel=2,
        )


@contextlib.contextmanager
def _without_numpy_warning() -> Iterator[None]:
    """Suppress torch's warning that numpy is missing, which a backend does not need.

    Torch issues it at the first argument that could be an array, in some versions in its own code, in others in ours.
    Where numpy is used, torch still raises.
    """
    before = list(warnings.filters)
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    ours = [entry for entry in warnings.filters if entry not in before]
    try:
        yield
    finally:  # not catch_warnings, which would take away the filters that torch itself adds
        for entry in ours:
            warnings.filters.remove(entry)  # type: ignore[attr-defined]


def _importing(name: str) -> bool:
    """Whether a module is being imported, which importlib keeps in the module's spec."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _let_explicit_import_win(package: str) -> None:
    """Refuse to autoload a backend while the user imports another one."""
    for name, module in list(sys.modules.items()):
        if name != package and "." not in name and "_autoload" in getattr(module, "__dict__", ()) and _importing(name):
            raise ImportError(
                f"{package} is refused: {name} is being imported, and torch supports one such backend per process",
                name=package,
            )


def _load(package: str) -> None:
    global _ready, _registered
    with _lock:
        if _ready and _backend.package == package:
            return import_python_parts()  # which raises the same errors as before
        build = _build_info(package)
        if _ready and _backend.package == package:  # by the import above
            return
        _check_versions(package, build)
        _check_slot(package, build)
        _backend.package, _backend.device, _backend.build = package, build.DEVICE, build
        _backend.C = _native(package, build)
        _check_fallback_setting()
        integrations.check_setting()
        if not _registered:  # before: with a driver that fails, each use of torch.<device> has its error
            _register()
            _registered = True
        _check_explicit_driver()
        _ready = True
        import_python_parts()
        _record_kernels()


def _record_kernels() -> None:
    """Save the record at the end of the process, if the environment asks for it."""
    path = os.environ.get(_backend.env_name("RECORD_KERNELS"))
    if path:
        from torch_backplane import compiler

        atexit.register(compiler.save_record, path)


def _build_info(package: str) -> ModuleType:
    try:
        return importlib.import_module(f"{package}._build_info")
    except ModuleNotFoundError as error:
        if error.name != f"{package}._build_info":
            raise
        raise ImportError(
            f"{package} has no native code: it was imported from its sources without being built. "
            "Build it in the project's folder: pip install --no-build-isolation -e .",
            name=package,
        ) from None


def _check_versions(package: str, build: ModuleType) -> None:
    """Before any native code loads, because a mismatch there is an undefined symbol or worse."""
    import torch

    rebuild = "pip install --no-build-isolation --force-reinstall --no-deps <folder or URL of the project>"
    if torch.__version__.split(".")[:2] != build.TORCH_MINOR.split("."):
        raise ImportError(
            f"{package} was built for torch {build.TORCH_MINOR}, but this is torch {torch.__version__}. "
            f"Install that torch: pip install 'torch=={build.TORCH_MINOR}.*' "
            f"or rebuild {package} for this one: {rebuild}",
            name=package,
        )
    if build.CORE_PROTOCOL != CORE_PROTOCOL:
        raise ImportError(
            f"{package} was built with torch-backplane {build.SDK_VERSION} (core protocol {build.CORE_PROTOCOL}), "
            f"but this is torch-backplane {__version__} (core protocol {CORE_PROTOCOL}). "
            f"Install that one: pip install 'torch-backplane~={build.SDK_VERSION}' "
            f"or rebuild {package} with this one: {rebuild}",
            name=package,
        )


def _check_slot(package: str, build: ModuleType) -> None:
    """Refuse a second backend: torch has one PrivateUse1, which native code takes in its static initialisers."""
    import torch

    cure = (
        "torch supports one such backend per process. Uninstall one of them, "
        f"or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want (here: `import {package}`)."
    )
    who = f"{package} (device '{build.DEVICE}') is refused"
    if _backend.package and _backend.package != package:
        raise ImportError(
            f"{who}: {_backend.package} (device '{_backend.device}') is loaded already, and {cure}", name=package
        )
    name = torch._C._get_privateuse1_backend_name()
    if not _backend.package and name != "privateuseone":
        raise ImportError(f"{who}: another package is registered under the name '{name}', and {cure}", name=package)


def _native(package: str, build: ModuleType) -> Module:
    """Load the native code, whose static initialisers take torch's slot for the rest of the process."""
    import torch

    try:
        return cast("Module", importlib.import_module(f"{package}._C"))
    except BaseException:
        if torch._C._get_privateuse1_backend_name() != build.DEVICE:  # it failed before that
            _backend.package, _backend.device, _backend.build = "", "", None
        raise


def _check_explicit_driver() -> None:
    """Load a driver that the user named now, so that an error is raised now; the default driver loads at first use."""
    if not any(os.environ.get(_backend.env_name(name)) for name in ("DRIVER", "SHIMS", "OPTIONS")):
        return
    try:
        _backend.C.driver.load()
    except RuntimeError as error:
        raise ImportError(str(error), name=_backend.package) from None


def _check_fallback_setting() -> None:
    if refused := _backend.C.fallback.refused_setting():
        raise ImportError(refused, name=_backend.package)


def import_python_parts(known: Collection[str] = ()) -> None:
    """Import the modules that native code names for its operators, and check that every kernel then has its operator.

    Args:
        known: errors that were reported before.
    """
    errors = []
    for written, site in _backend.C.kernels.python_modules():
        name = importlib.util.resolve_name(written, _backend.package)  # ".ops" is the package's own
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise
            errors.append(
                f"{site}: there is no Python module {name}, which m.python_module names for operators. "
                "Add it, or correct the name"
            )
    errors += _backend.C.kernels.registration_errors()
    if new := [error for error in errors if error not in known]:
        lines = "\n  ".join(new)
        raise ImportError(f"operators of {_backend.device} could not be registered:\n  {lines}", name=_backend.package)


def _register() -> None:
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    from torch.utils import backend_registration

    from torch_backplane import compat, multiprocessing, process_group
    from torch_backplane import device as module
    from torch_backplane.compat import convolution, dlpack, dynamo, flex_attention, nested, profiler
    from torch_backplane.inductor import entry

    name = _backend.device
    backend_registration.rename_privateuse1_backend(name)  # the names in Python; native code did it for C++
    if not hasattr(torch, name):
        torch._register_device_module(name, module)
        module.__name__ = f"torch.{name}"  # Dynamo makes the source of torch.get_device_module(...) of it
        module.tensor_types.add_to(module)
    for part in ("amp", "memory", "profiler", "random", "streams"):
        sys.modules[f"torch.{name}.{part}"] = getattr(module, part)
    if not hasattr(torch.Tensor, name):
        backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    _backend.C.streams.show_events()
    compat.let_higher_order_ops_pass_autocast()
    compat.let_script_object_ops_pass_autocast()
    compat.share_random_states(name)
    convolution.install(name)
    dlpack.install(name)
    dynamo.install(name)
    flex_attention.install(name)
    entry.install()
    nested.install(name)
    profiler.install(name)
    register_optimizer_step_pre_hook(module.graphs.refuse_steps_of_the_host)
    multiprocessing.install()
    process_group.install()
    integrations.install()
    if os.environ.get(_backend.env_name("SANITIZER"), "0") not in ("", "0"):
        from torch_backplane import sanitizer

        sanitizer.enable()
    atexit.register(_backend.C.devices.drain_autograd)  # backend/aten/autograd_threads.cpp
