"""torch-backplane port reads all of its sources: the result parses and is ported once."""

import ast
import importlib.util
import warnings
from pathlib import Path

import pytest

from backplane_tools.port import Target, port_source

LIBRARIES = ()  # their sources are read; nothing of them runs


@pytest.mark.long
@pytest.mark.parametrize("target", [Target(), Target("mydevice")], ids=["accelerator", "named"])
@pytest.mark.parametrize(
    ("package", "least"), [("accelerate", 60), ("peft", 8), ("transformers", 150), ("torch.distributed", 40)]
)
def test_a_librarys_sources_are_ported(package, least, target):
    """``least``: about two thirds of the replacements in the pinned version. Its files are read, never written."""
    (folder,) = importlib.util.find_spec(package).submodule_search_locations
    replaced = left = 0
    for path in sorted(Path(folder).rglob("*.py")):
        content = path.read_bytes()
        ported = port_source(content, target)
        assert not ported.problem, path
        replaced += sum(place.new is not None for place in ported.places)
        left += sum(place.new is None and place.counts for place in ported.places)
        assert all("Python refuses" not in place.reason for place in ported.places), path
        if ported.content == content:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(ported.content)
        again = port_source(ported.content, target)
        assert again.content == ported.content, path
        assert [place for place in again.places if place.new] == [], path
    assert replaced >= least
    assert left <= replaced / 2
