"""Runs docs/bring-up.md: shell blocks in order, diffs, and what the text blocks say that the commands print.

One after the other in one environment, in which the page's project is the only backend. The steps are one test, because
each builds on the one before.
"""

from pathlib import Path

import pytest
from pages import Block, blocks
from projects import ROOT, Environment

PAGE = "docs/bring-up.md"

pytestmark = [pytest.mark.xdist_group("live"), pytest.mark.timeout(900)]


class Reader:
    """Does what the page says, as one who types it does: the folder stays from one block to the next."""

    def __init__(self, folder: Path) -> None:
        self.environment = Environment(folder / "venv")
        self.environment.pip("install", "--no-build-isolation", "--no-deps", "-e", ROOT)
        self.here = folder
        self.printed = ""

    def do(self, block: Block) -> None:
        {"sh": self.run, "diff": self.edit, "text": self.expect}[block.language](block.content)

    def run(self, commands: str) -> None:
        marker = "the-reader-is-in:"
        said = self.environment.run("bash", "-e", "-c", f"{commands}\necho {marker}$PWD", cwd=self.here)
        self.printed, _, folder = said.rpartition(marker)
        self.here = Path(folder.strip())

    def edit(self, diff: str) -> None:
        """Apply a diff whose one hunk occurs once in its file."""
        name, _, *lines = diff.splitlines()
        path = self.here / name.removeprefix("--- ")
        old = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
        new = "".join(line[1:] + "\n" for line in lines if line[0] in " +")
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path} has {text.count(old)} times:\n{old}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def expect(self, lines: str) -> None:
        """Every line is printed by the block before, in this order; "..." stands for any lines."""
        rest = self.printed
        for line in lines.splitlines():
            if line != "...":
                assert line in rest, f"not printed: {line}\n{self.printed}"
                rest = rest.split(line, 1)[1]


def test_every_step_works(tmp_path):
    reader = Reader(tmp_path)
    done = []
    for block in blocks(PAGE):
        try:
            reader.do(block)
        except AssertionError as error:
            raise AssertionError(f"{PAGE}, line {block.line}: {error}") from None
        done.append(block.language)
    assert (done.count("sh"), done.count("diff"), done.count("text")) == (9, 4, 3)
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
