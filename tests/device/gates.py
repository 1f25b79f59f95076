"""``Gates(path)``: streams held up by the shim ``drivers/hold_streams.c``; and the minimal driver, without streams."""

import ctypes
import itertools
from contextlib import contextmanager
from pathlib import Path


def minimal_driver(folder):
    """The path of the minimal driver, compiled into a folder."""
    import shims

    import backplane_sdk

    return shims.compiled(backplane_sdk.source_dir() / "examples/minimal_driver/minimal_driver.c", folder)


def prelude(path):
    """Python code that gives a test's process ``gates``."""
    here = str(Path(__file__).parent)
    return f"import sys; sys.path.insert(0, {here!r})\nfrom gates import Gates\ngates = Gates({str(path)!r})\n"


class Gates:
    """Holds streams up. The process runs with ``<DEVICE>_SHIMS`` naming the shim."""

    def __init__(self, path):
        self.shim = ctypes.CDLL(str(path))
        self.numbers = itertools.cycle(range(64))

    @staticmethod
    def _place(stream):
        from torch_backplane import _backend

        handle = _backend.C.streams.handle(stream.stream_id, stream.device_index)
        return stream.device_index, ctypes.c_uint64(handle)

    @contextmanager
    def shut(self, stream):
        """Work queued on the stream within the block, and later, waits for the end of the block."""
        gate = next(self.numbers)
        assert self.shim.shut_gate(gate, *self._place(stream)) == 0
        try:
            yield
        finally:
            self.shim.open_gate(gate)

    def delay(self, stream, microseconds):
        """Delays the later work of the stream."""
        assert self.shim.delay(*self._place(stream), microseconds) == 0
