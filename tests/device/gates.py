"""``Gates(path)``: streams held up by the shim ``drivers/hold_streams.c``; and what builds the shim."""

import ctypes
import itertools
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path


def build(folder):
    """Compile the shim into a folder; its path."""
    import backplane_sdk

    path = folder / "libgate.so"
    source = Path(__file__).parent / "drivers" / "hold_streams.c"
    include = f"-I{backplane_sdk.include_dir()}"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", include, str(source)]
    subprocess.run([*command, "-o", str(path)], check=True)
    return path


def build_minimal(folder):
    """Compile the minimal driver, which has neither streams nor events of its own; its path."""
    import backplane_sdk

    path = folder / "libminimal_driver.so"
    source = backplane_sdk.source_dir() / "examples/minimal_driver/minimal_driver.c"
    include = f"-I{backplane_sdk.include_dir()}"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-shared", "-fPIC", include, str(source), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


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
        """Work that the stream gets in the block, and later, waits for the end of the block."""
        gate = next(self.numbers)
        assert self.shim.shut_gate(gate, *self._place(stream)) == 0
        try:
            yield
        finally:
            self.shim.open_gate(gate)

    def delay(self, stream, microseconds):
        """Later work of the stream comes so much later."""
        assert self.shim.delay(*self._place(stream), microseconds) == 0
