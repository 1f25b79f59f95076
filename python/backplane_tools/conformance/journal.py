"""The results as they come, JSON lines on disk: what an interrupted run leaves, and ``--resume`` continues."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TextIO

from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.record import Row

FOLDER = Path(".conformance")
_SAME = {"torch": "torch", "backend": "the backend", "driver": "the driver", "options": "the driver's options"}


class Journal:
    """The file of one selection: another selection has another file, so repeating one failure harms no long run."""

    def __init__(self, selection: dict[str, Any], folder: Path = FOLDER) -> None:
        self.selection = selection
        key = hashlib.blake2b(json.dumps(selection, sort_keys=True).encode(), digest_size=6).hexdigest()
        self.path = folder / f"{key}.jsonl"
        self._file: TextIO | None = None

    def open(self, about: dict[str, Any], *, resume: bool) -> list[Row]:
        """Begin to write.

        Args:
            about: what is tested; a run on something else is not continued.
            resume: keep what is there.

        Returns:
            The rows that are there, in their order.

        Raises:
            ConformanceError: there is nothing to resume, or another backend wrote it.
        """
        rows = self._read(about) if resume else []
        folder = self.path.parent
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        # Written anew: the last line of a run that was killed may be half a line.
        self._file = self.path.open("w", encoding="utf-8")
        self._line({"selection": self.selection, "about": about})
        for row in rows:
            self.add(row)
        return rows

    def add(self, row: Row) -> None:
        """Write a row; it is on disk when this returns, as far as this process is concerned."""
        self._line(row.to_json())

    def close(self) -> None:
        """End the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _line(self, data: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()

    def _read(self, about: dict[str, Any]) -> list[Row]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            raise ConformanceError(
                f"--resume: no run of this selection was begun in this folder (there is no {self.path}). "
                "Give the same suites, dtypes, cases, shard and seed as before, or leave --resume out"
            ) from None
        head = json.loads(lines[0])["about"] if lines else about
        for key, what in _SAME.items():
            if head.get(key) != about.get(key):
                raise ConformanceError(
                    f"--resume: {what} was {head.get(key)!r} and is {about.get(key)!r} now. "
                    "Begin anew, without --resume"
                )
        rows = []
        for line in lines[1:]:
            try:
                rows.append(Row.from_json(json.loads(line)))
            except json.JSONDecodeError:
                break
        return rows
