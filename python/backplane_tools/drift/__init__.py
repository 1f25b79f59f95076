"""What the SDK uses of torch's private surface, and how it differs between versions: ``torch-backplane drift``.

A surface is what one torch has of it: sections of names, each with a text that changes when its use might break:
the parameters of a Python name, the virtual functions of a C++ class that the core derives from, a header's presence,
an operator's schema, a table of functions by device type. ``surfaces.json`` holds those of the versions that the SDK is
written for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

DEVELOPED_WITH = "2.13"
"""The minor version that all tests run on, and that others are compared with."""

SECTIONS = ("python", "classes", "headers", "operators", "stubs")

Texts = dict[str, dict[str, str]]
"""Section, name, text. A name that a torch does not have has no entry."""


@dataclass(frozen=True)
class Surface:
    """What one torch has of what the SDK uses."""

    version: str
    """As torch names itself, or the minor version of a record."""
    texts: Texts
    unknown: dict[str, str]
    """Python names that could not be looked up because another package is missing there, and which."""


@dataclass(frozen=True)
class Change:
    """One name that differs between two versions."""

    section: str
    name: str
    before: str | None
    """Its text in the reference; None if that has no such name."""
    after: str | None
    """Its text in the torch that is looked at; None if that has no such name."""

    @property
    def kind(self) -> str:
        """``gone``, ``new`` or ``changed``."""
        if self.after is None:
            return "gone"
        return "new" if self.before is None else "changed"


def compare(before: Surface, after: Surface) -> Iterator[Change]:
    """Yield what differs, by section and name. What either could not look up is passed over."""
    for section in SECTIONS:
        old, new = before.texts.get(section, {}), after.texts.get(section, {})
        for name in sorted(old.keys() | new.keys()):
            if name in before.unknown or name in after.unknown:
                continue
            if old.get(name) != new.get(name):
                yield Change(section, name, old.get(name), new.get(name))
