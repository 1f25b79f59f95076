"""Files of surfaces: a name is there once, with each form that it has had and the versions of that form."""

from __future__ import annotations

import json
from pathlib import Path

from backplane_tools.drift import SECTIONS, Surface, Texts

OWN = Path(__file__).with_name("surfaces.json")
"""The versions that the SDK is written for."""

# section -> name -> versions, separated by spaces -> text
Forms = dict[str, dict[str, dict[str, str]]]


def _load(path: Path) -> Forms:
    """Raises ValueError for a file that is none of these."""
    try:
        forms = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(forms, dict)
        assert forms.keys() == set(SECTIONS)
    except (ValueError, AssertionError) as error:
        raise ValueError(f"{path}: not a file that drift --record has written") from error
    return forms


def _columns(forms: Forms) -> dict[str, Texts]:
    columns: dict[str, Texts] = {}
    for section, names in forms.items():
        for name, versions in names.items():
            for together, text in versions.items():
                for version in together.split():
                    columns.setdefault(version, {part: {} for part in SECTIONS})[section][name] = text
    return columns


def _order(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def minors(path: Path = OWN) -> list[str]:
    """Return the versions of a file, the oldest first. Raises ValueError, OSError."""
    return sorted(_columns(_load(path)), key=_order)


def operators(path: Path = OWN) -> set[str]:
    """Return the operators of a file, whatever version has them."""
    return set(_load(path)["operators"])


def read(minor: str, path: Path = OWN) -> Surface:
    """Return the surface of one version. Raises KeyError, ValueError, OSError."""
    return Surface(minor, _columns(_load(path))[minor], {})


def write(surface: Surface, path: Path) -> None:
    """Put a surface into a file, in the place of the one of its minor version. Names that no version has are dropped.

    Raises:
        ValueError: names could not be looked up, or the file is another's.
    """
    if surface.unknown:
        name, why = next(iter(surface.unknown.items()))
        raise ValueError(f"{len(surface.unknown)} names cannot be looked up there, such as {name}: {why}")
    minor = ".".join(surface.version.split(".")[:2])
    columns = _columns(_load(path)) if path.exists() else {}
    columns[minor] = surface.texts
    forms: Forms = {}
    for section in SECTIONS:
        names = sorted({name for texts in columns.values() for name in texts[section]})
        forms[section] = {name: _forms(columns, section, name) for name in names}
    path.write_text(_dump(forms), encoding="utf-8")


def _dump(forms: Forms) -> str:
    """Return JSON with a line for each name."""
    sections = []
    for section, names in forms.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(versions)}" for name, versions in names.items())
        sections.append(f" {json.dumps(section)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _forms(columns: dict[str, Texts], section: str, name: str) -> dict[str, str]:
    together: dict[str, list[str]] = {}
    for version in sorted(columns, key=_order):
        text = columns[version][section].get(name)
        if text is not None:
            together.setdefault(text, []).append(version)
    return {" ".join(versions): text for text, versions in together.items()}
