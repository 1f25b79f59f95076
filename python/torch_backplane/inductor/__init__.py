"""``torch.compile`` for a device whose driver compiles: Inductor's kernels in the SDK's dialect (docs/dialect.md).

Inductor fuses, schedules and allocates as for any device; what it hands out as a kernel is written here in the words
that the driver's compiler takes, compiled and cached as the portable kernels are. Matrix products, convolutions and
whatever has no lowering are calls of the device's own operators.

But for :mod:`torch_backplane.inductor.entry`, nothing here is imported before a program compiles.
"""
