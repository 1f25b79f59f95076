"""One who does what a page says: types its shell blocks, makes its edits, and looks for what it says is printed."""

from __future__ import annotations

from pathlib import Path

from pages import Block, blocks
from projects import Environment


class Reader:
    """The folder stays from one block to the next."""

    def __init__(self, folder: Path) -> None:
        self.environment = Environment(folder / "venv")
        self.here = folder
        self.printed = ""

    def read(self, page: str) -> list[str]:
        """Do all that the page says, and return the languages of its blocks."""
        done = []
        for block in blocks(page):
            try:
                self.do(block)
            except AssertionError as error:
                raise AssertionError(f"{page}, line {block.line}: {error}") from None
            done.append(block.language)
        return done

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
