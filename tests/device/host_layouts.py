"""Layouts of device tensors that the host reads, of a base of 4 x 6; and waits that a gate delays."""

import gates

LAYOUTS = {
    "contiguous": lambda base: base,
    "transposed": lambda base: base.t(),
    "a part with an offset": lambda base: base[1:3, 2:5],
    "every second": lambda base: base[::2, 1::2],
    "one column": lambda base: base[:, 3],
    "no dimension": lambda base: base[2, 2],
    "no element": lambda base: base[:0],
}


def run_delayed(printed, shim, memory_kind, code):
    """The output lines of a program with ``gates``, which delay streams."""
    prelude = gates.prelude(shim("hold_streams"))
    return printed(prelude + code, f"kind={memory_kind},stream=async", shim_name="hold_streams").splitlines()
