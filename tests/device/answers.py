"""``same(found, expected, device)``: the device's answer is the CPU's."""

from torch_backplane.testing.compare import Rules, compare


def same(found, expected, device, **rules):
    """Compare tensors or trees of them in everything that a program sees; ``rules`` are those of ``Rules``."""
    compare(expected, found, device, Rules(near=False).but(**rules), "result")
