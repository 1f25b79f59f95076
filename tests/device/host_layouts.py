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


def run_delayed(run_in_process, name, memory_kind, shim, code):
    """The output lines of a program with the device ``d``, its module ``m``, and ``gates``, which delay streams."""
    path = shim("hold_streams")
    prelude = gates.prelude(path) + f"import torch\nm, d = torch.{name}, {name!r}\n"
    env = {f"{name.upper()}_SHIMS": path, f"{name.upper()}_DRIVER": None}
    options = f"kind={memory_kind},stream=async"
    return run_in_process(prelude + code, options=options, env=env).stdout.splitlines()
