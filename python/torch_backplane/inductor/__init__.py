"""``torch.compile`` for a device whose driver compiles: Inductor's kernels in the SDK's dialect (docs/dialect.md).

Inductor fuses, schedules and allocates as for any device; its kernels are written here in the dialect, and compiled
and cached as the portable kernels are. Matrix products, convolutions and operators without a lowering are calls of the
device's own operators.

Except for :mod:`torch_backplane.inductor.entry` and :mod:`torch_backplane.inductor.triton`, nothing here is imported
before a program compiles.
"""

LIBRARY = ["math.bpc", "special.bpc", "philox.bpc", "generated.bpc"]
"""Of the dialect, before the text of every generated kernel."""
