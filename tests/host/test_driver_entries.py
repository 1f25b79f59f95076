"""Every entry that the driver interface asks of a vendor is called by the core, or its header says that it is not."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = sorted((ROOT / "include/backplane/driver").glob("*.h"))
CORE = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "backend").rglob("*.[ch]*"))
NOT_CALLED = {"module": {"unload"}}


def slots(header):
    listed = re.search(r"#define BP_\w+_SLOTS\(X\)((?:.*\\\n)*.*\n)", header.read_text(encoding="utf-8"))
    return re.findall(r"X\((\w+)\)", listed[1]) if listed else []


@pytest.mark.parametrize("header", [header for header in HEADERS if slots(header)], ids=lambda path: path.stem)
def test_every_entry_of_a_group_is_called(header):
    """By ``call<&bp_peer::enable>`` and its like, or on the table itself: ``group->start(group->head.self, ...)``."""
    group = header.stem

    def is_called(slot):
        return re.search(rf"bp_{group}::{slot}\b|\b{slot}\((?:\w+(?:->|\.))+self\b", CORE)

    assert {slot for slot in slots(header) if not is_called(slot)} == NOT_CALLED.get(group, set())
    words = " ".join(header.read_text(encoding="utf-8").replace("*", " ").split())
    assert not NOT_CALLED.get(group) or "the core of this version does not" in words.replace("The core", "the core")
