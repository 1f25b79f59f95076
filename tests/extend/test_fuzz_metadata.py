"""Metadata of a damaged or hostile file is read, or refused by an error: nothing else happens."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.long  # of the backend that test_extend.py builds


def test_metadata_of_any_file(on_extdevice: Callable[..., dict[str, Any]]) -> None:
    examples = int(os.environ.get("FUZZ_EXAMPLES", "0"))
    seen = on_extdevice(
        """
        from hypothesis import example, given, settings, strategies as st
        examples = int(sys.argv[1])
        words = ["backplane.metadata", "1", "2", "0", "-1", "4294967296", "extdevice.format", "other", "format=4",
                 "format=%41", "format=%", "format=%4", "=", "&", "format", "%00=%FF", "8", "9", ""]
        part = st.one_of(st.sampled_from(words), st.text(max_size=8), st.integers(0, 2**70).map(str))
        whole = st.lists(part, max_size=8).map("/".join)
        fields = st.lists(st.sampled_from(words), max_size=4).map("&".join)
        right = st.tuples(st.integers(0, 3), fields, st.integers(-2, 2)).map(
            lambda t: f"backplane.metadata/1/extdevice.format/{t[0]}/{len(t[1]) + t[2]}/{t[1]}")
        key = st.one_of(whole, whole.map("backplane.metadata/1/extdevice.format/2/".__add__), right)
        outcomes = {"read": 0, "refused": 0}

        @settings(max_examples=examples or 500, derandomize=examples == 0, database=None, deadline=None)
        @given(st.dictionaries(key, st.booleans(), max_size=2))
        @example({"\\0": False})  # a message goes on after it
        @example({"backplane.metadata/1/extdevice.format/2/10/format=%41": True})  # what the vendor's class throws
        def check(entries):
            x = torch.ones(2, device="extdevice")
            try:
                torch._utils.set_tensor_metadata(x, entries)
                outcomes["read"] += 1
            except (RuntimeError, ValueError) as error:
                assert "torch.load" in str(error) or "format" in str(error), str(error)
                assert ops.get_format(x) is None
                outcomes["refused"] += 1
            except UnicodeError:  # of Python, for a lone surrogate
                pass

        check()
        report(**outcomes)
        """,
        str(examples),
    )
    assert seen["read"] > 0
    assert seen["refused"] > 50
