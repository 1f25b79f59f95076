"""Adapts libraries that choose a device from their own list, when a program imports them.

Off by default: ``<DEVICE>_INTEGRATIONS=auto`` or ``import torch_backplane.integrations.auto`` enables it. The table is
in docs/integrations.md. Each library has a file in this package, which is imported when the library is, and does not
import it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
import threading
import warnings
from dataclasses import dataclass
from types import ModuleType

from torch_backplane import _backend, imports
from torch_backplane.integrations._library import Integration, Patch, Unexpected

__all__ = ["LIBRARIES", "Integration", "IntegrationWarning", "Outcome", "Patch", "Unexpected", "report"]

LIBRARIES: dict[str, str] = {
    "accelerate": f"{__name__}.accelerate",
    "transformers": f"{__name__}.transformers",
    "sentence_transformers": f"{__name__}.sentence_transformers",
    "trl": f"{__name__}.trl",
    "deepspeed": f"{__name__}.deepspeed",
    "diffusers": f"{__name__}.diffusers",
    "lightning": f"{__name__}.lightning",
    "lightning_fabric": f"{__name__}.lightning_fabric",
    "pytorch_lightning": f"{__name__}.pytorch_lightning",
    "safetensors": f"{__name__}.safetensors",
    "stable_baselines3": f"{__name__}.stable_baselines3",
    "ultralytics": f"{__name__}.ultralytics",
    "whisper": f"{__name__}.whisper",
    "ray": f"{__name__}.ray",
    "litgpt": f"{__name__}.litgpt",
    "fla": f"{__name__}.fla",
    "flag_gems": f"{__name__}.flag_gems",
    "liger_kernel": f"{__name__}.liger_kernel",
}
"""Import name of each supported library, and the module that has its ``integration``."""

DEPENDS_ON: dict[str, tuple[str, ...]] = {
    "accelerate": ("safetensors",),
    "transformers": ("accelerate",),
    "sentence_transformers": ("transformers",),
    "trl": ("transformers",),
    "diffusers": ("transformers",),
    "pytorch_lightning": ("lightning_fabric",),
    "litgpt": ("lightning",),
}
"""Libraries that are adapted together with a library because they choose its device."""


class IntegrationWarning(UserWarning):
    """A library is not adapted: integrations are off, or this one does not support the library's version."""


@dataclass
class Outcome:
    """The state of one library in this process."""

    library: str
    """Its import name."""
    state: str = "not imported"
    """``not imported``, ``off`` (imported, and not selected), ``applied``, ``unknown version`` or ``failed``."""
    version: str | None = None
    """The installed version; None if it was not looked up, or there is none."""
    done: tuple[str, ...] = ()
    """What was changed, in words; for ``unknown version`` and ``failed`` the reason why nothing was."""


_lock = threading.RLock()  # over the state below; never held while a library's code runs
_outcomes: dict[str, Outcome] = {}
_patches: dict[str, Patch] = {}
_adapted: dict[str, ModuleType] = {}  # module name -> the module object; a reload is seen by its loader, not here
_chosen: frozenset[str] = frozenset()
_announce = False  # the environment variable is unset: a hint at the first import of a library
_outermost = ""  # that library: it may import others, which the user did not name
_finder: imports.AfterImport | None = None


def check_setting() -> None:
    """Raise ImportError if the environment names an unknown library."""
    _from_environment()


def install() -> None:
    """Adapt the libraries that the environment names; called when a backend registers."""
    global _announce
    names = _from_environment()
    _announce = names is None
    if names is None or names:
        _adapt(frozenset(names or ()))


def enable() -> None:
    """Adapt all libraries, also those that are imported already. The environment takes precedence."""
    global _announce
    names = _from_environment()
    _announce = False
    _adapt(frozenset(LIBRARIES if names is None else names))


def is_chosen(library: str) -> bool:
    """Whether the environment, or the import of ``auto``, selects the library."""
    return library in _chosen


def report() -> list[Outcome]:
    """The state of every supported library in this process. From any thread."""
    with _lock:
        return [
            _outcomes.get(name) or Outcome(name, "off" if name in sys.modules else "not imported") for name in LIBRARIES
        ]


def _from_environment() -> list[str] | None:
    """The libraries that the environment names: an empty list for ``none``, None if it is unset."""
    variable = _backend.env_name("INTEGRATIONS")
    text = os.environ.get(variable, "")
    words = [word.strip().replace("-", "_") for word in text.split(",") if word.strip()]
    if not words:
        return None
    if words in (["auto"], ["none"]):
        return list(LIBRARIES) if words == ["auto"] else []
    if unknown := [word for word in words if word not in LIBRARIES]:
        raise ImportError(
            f"{variable}={text}: there is no integration for {', '.join(unknown)}. It is auto, none, or some of "
            f"{', '.join(LIBRARIES)}",
            name=_backend.package,
        )
    for word in words:  # the list grows
        words += [other for other in DEPENDS_ON.get(word, ()) if other not in words]
    return words


def _adapt(chosen: frozenset[str]) -> None:
    """Watch imports from now on, and adapt what has been imported before."""
    global _chosen, _finder
    with _lock:
        _chosen |= chosen
        if _finder is None:
            _finder = imports.AfterImport(_wanted, _imported)
            sys.meta_path.insert(0, _finder)
    for library in LIBRARIES:
        if library in sys.modules:
            names = (library, *_integration(library).modules) if library in _chosen else (library,)
            for name in dict.fromkeys(names):
                imports.when_imported(name, _imported)


def _integration(library: str) -> Integration:
    found: Integration = importlib.import_module(LIBRARIES[library]).integration
    return found


def _wanted(name: str) -> bool:
    """Whether a module is handled after its import; called at every import of the process."""
    library = name.partition(".")[0]
    if library not in LIBRARIES:
        return False
    if library not in _chosen:
        if not _announce or name != library:
            return False
        _note_outermost(library)
        return True
    outcome = _outcomes.get(library)
    if outcome and outcome.state in ("unknown version", "failed"):
        return False
    return name == library or name in _integration(library).modules


def _note_outermost(library: str) -> None:
    global _outermost
    with _lock:
        if _outermost not in sys.modules:  # none so far, or its import has failed
            _outermost = library


def _imported(name: str, module: ModuleType, again: bool = False) -> None:
    """A module's import has ended; ``again`` after a reload, which undid the changes."""
    library = name.partition(".")[0]
    if library not in _chosen:
        return _hint(library)
    with _lock:
        if _adapted.get(name) is module and not again:
            return
        _adapted[name] = module
    if not _is_supported(library) or name not in (integration := _integration(library)).modules:
        return
    patch, version = _patches[library], str(_outcomes[library].version)
    try:
        words = [step(module, patch) for step in integration.steps(name, version)]
    except Exception as error:
        reason = str(error) if isinstance(error, Unexpected) else f"{type(error).__name__}: {error}"
        return _give_up(library, reason)
    with _lock:
        outcome = _outcomes[library]
        if outcome.state == "failed":  # in another thread, since
            return patch.undo()
        outcome.done = tuple(dict.fromkeys((*outcome.done, *words)))


def _is_supported(library: str) -> bool:
    """Whether the library has a version that its file was tried with; warns once if it does not."""
    with _lock:
        outcome = _outcomes.get(library)
        if outcome and outcome.state != "off":
            return outcome.state == "applied"
        integration = _integration(library)
        outcome = _outcomes[library] = Outcome(library, "applied")
        _patches[library] = Patch(library)
        try:
            outcome.version = importlib.metadata.version(integration.distribution)
        except importlib.metadata.PackageNotFoundError:
            outcome.version = None
        if outcome.version and integration.knows(outcome.version):
            return True
        found = f"is {outcome.version}" if outcome.version else f"has no version ({integration.distribution})"
        outcome.state, outcome.done = "unknown version", (f"tried with {integration.tried}",)
    warnings.warn(
        f"{library} {found}, and the integration of {_backend.device} with it was tried with {integration.tried}: "
        f"nothing is changed in it. Install such a version, or leave {library} out of "
        f"{_backend.env_name('INTEGRATIONS')}",
        IntegrationWarning,
        stacklevel=2,
    )
    return False


def _give_up(library: str, reason: str) -> None:
    with _lock:
        outcome = _outcomes[library]
        _patches[library].undo()
        if outcome.state == "failed":
            return
        outcome.state, outcome.done = "failed", (reason,)
    warnings.warn(
        f"{library} {outcome.version} is not as the integration of {_backend.device} with it expects: {reason}. "
        f"Nothing is changed in it; leave {library} out of {_backend.env_name('INTEGRATIONS')} to silence this",
        IntegrationWarning,
        stacklevel=2,
    )


def _hint(library: str) -> None:
    """Once per process, and only if there is a device that the library could use."""
    global _announce
    with _lock:
        _outcomes.setdefault(library, Outcome(library, "off"))
        if not _announce or (_outermost and library != _outermost):
            return
        _announce = False
    if not _backend.loaded() or _backend.C.devices.count() == 0:
        return
    variable = _backend.env_name("INTEGRATIONS")
    warnings.warn(
        f"{library} does not choose {_backend.device} by itself: {variable}=auto changes that, {variable}=none "
        "silences this warning (docs/integrations.md of torch-backplane)",
        IntegrationWarning,
        stacklevel=2,
    )
