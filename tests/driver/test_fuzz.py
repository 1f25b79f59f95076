"""What comes from outside never crashes a driver or a shim: option strings, and the tables of hostile drivers.

A hostile table lies at the end of a page with nothing behind it, so that a byte read beyond its size is a crash.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest
from checker import Built
from fuzz import bounded
from hypothesis import given
from hypothesis import strategies as st
from interface import (
    ABI,
    FIRST_SLOT,
    INVALID_ARGUMENT,
    OK,
    SIZE,
    SLOTS,
    UNSUPPORTED,
    Count,
    Entry,
    Host,
    SetError,
    Table,
)

PAGE = mmap.PAGESIZE


class Library:
    """A driver or shim, and why it last refused."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.bp_driver_get.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self.reason = ""
        self._hosts: list[Host] = []

    def get(self, config: bytes, inner: int | None = None) -> tuple[int, Table | None]:
        def note(_: int, text: bytes) -> None:
            self.reason = text.decode(errors="replace")

        self.reason = ""
        host = Host(ctypes.sizeof(Host), *ABI, None, None, SetError(note), config, inner)
        self._hosts = [host]  # it lives until the driver is closed
        out = ctypes.POINTER(Table)()
        status = self._library.bp_driver_get(ctypes.byref(host), ctypes.byref(out))
        return status, out.contents if status == OK else None


def close(table: Table) -> None:
    assert Entry(table.slots[3])(table.self) == OK


@pytest.fixture(scope="module")
def libraries(built: Built) -> dict[str, Library]:
    names = ("sim", "shims/emulate", "shims/fault", "shims/trace")
    return {Path(name).name: Library(built.sdk_driver(name)) for name in names}


@pytest.fixture(scope="module")
def end_of_page() -> Iterator[int]:
    """The address behind a page that may be written; what follows it may not be touched."""
    pages = mmap.mmap(-1, 2 * PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(base + PAGE), PAGE, 0) == 0
    yield base + PAGE
    assert libc.mprotect(ctypes.c_void_p(base + PAGE), PAGE, 3) == 0


KEYS = "devices memory kind stream streams alloc_fail delay seed link strict alloc copy kernel lost hang device".split()
WORDS = "0 1 2 -1 64 65 1GiB 9999999999TiB unified discrete async inline on off @3 @3-2 @+ @1+ any x".split()
item = st.one_of(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(WORDS)).map("=".join),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
)
options = st.lists(item, max_size=5).map(",".join)


@pytest.mark.long
@bounded
@given(config=options, name=st.sampled_from(["sim", "fault"]))
def test_option_strings(libraries: dict[str, Library], config: str, name: str) -> None:
    inner = None
    if name == "fault":
        status, sim = libraries["sim"].get(b"memory=1MiB")
        assert status == OK
        assert sim is not None
        inner = ctypes.addressof(sim)
    status, table = libraries[name].get(config.encode(), inner)
    if table is not None:
        count = ctypes.c_int32(-1)
        assert Count(table.slots[0])(table.self, ctypes.byref(count)) == OK
        assert 0 <= count.value <= 64
        close(table)
        return
    assert status == INVALID_ARGUMENT
    assert libraries[name].reason.startswith("options: ")
    if inner is not None:
        close(sim)


@pytest.mark.long
@bounded
@given(
    shim=st.sampled_from(["emulate", "fault", "trace"]),
    size=st.one_of(st.integers(0, SIZE + 8), st.just(SIZE), st.just(2**64 - 1)),
    room=st.integers(FIRST_SLOT, SIZE),
    abi=st.sampled_from([ABI, ABI, ABI, (0, 1), (0, 3), (1, 0), (2**32 - 1, 7)]),
    flags=st.sampled_from([0, 1, 2, 3, 2**32 - 1]),
    absent=st.sets(st.integers(0, SLOTS - 1), max_size=6),
)
def test_tables_of_hostile_drivers(
    libraries: dict[str, Library],
    end_of_page: int,
    shim: str,
    size: int,
    room: int,
    abi: tuple[int, int],
    flags: int,
    absent: set[int],
) -> None:
    status, sound = libraries["sim"].get(b"memory=1MiB")
    assert status == OK
    assert sound is not None
    hostile = Table.from_buffer_copy(sound)
    room = SIZE if size > SIZE else max(size & ~7, FIRST_SLOT)  # a table that claims more than it has is not noticed
    hostile.struct_size, (hostile.abi_major, hostile.abi_minor), hostile.flags = size, abi, flags
    for slot in absent:
        hostile.slots[slot] = None
    address = end_of_page - room
    ctypes.memmove(address, ctypes.addressof(hostile), room)
    status, table = libraries[shim].get(b"", address)
    if table is None:
        assert status in (INVALID_ARGUMENT, UNSUPPORTED)
        assert libraries[shim].reason
        close(sound)
        return
    assert abi == ABI
    assert not absent & set(range(9))
    assert size >= FIRST_SLOT + 9 * 8
    count = ctypes.c_int32(-1)
    assert Count(table.slots[0])(table.self, ctypes.byref(count)) == OK
    assert count.value == 2
    close(table)  # and with it the one below
