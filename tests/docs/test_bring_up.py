"""Runs docs/bring-up.md: shell blocks in order, diffs, and what the text blocks say that the commands print.

One after the other in one environment, in which the page's project is the only backend. The steps are one test, because
each builds on the one before.
"""

import pytest
from projects import ROOT
from reader import Reader

PAGE = "docs/bring-up.md"

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("live"), pytest.mark.timeout(900)]


def test_every_step_works(tmp_path):
    reader = Reader(tmp_path)
    reader.environment.pip("install", "--no-build-isolation", "--no-deps", "-e", ROOT)
    done = reader.read(PAGE)
    assert (done.count("sh"), done.count("diff"), done.count("text")) == (13, 8, 4)
    assert "passed" in reader.printed


def test_a_wrong_step_is_noticed(tmp_path):
    """The reader itself must be able to fail."""
    reader = Reader.__new__(Reader)
    reader.here, reader.printed = tmp_path, "one\ntwo\n"
    (tmp_path / "file").write_text("a\nb\nb\n")
    reader.expect("one\n...\ntwo\n")
    with pytest.raises(AssertionError, match="not printed"):
        reader.expect("two\none\n")
    with pytest.raises(AssertionError, match="2 times"):
        reader.edit("--- file\n@@\n-b\n+c\n")
    reader.edit("--- file\n@@\n a\n-b\n+c\n")
    assert (tmp_path / "file").read_text() == "a\nc\nb\n"
