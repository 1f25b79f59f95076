"""A wrong lowering, for ``--prepare random_kernels.planted:least_is_largest``: the fuzzer finds it."""

from torch_backplane.triton import expressions


def least_is_largest() -> None:
    """The smaller of two numbers is the larger."""
    expressions.HANDLERS["arith.minnumf"] = expressions.HANDLERS["arith.maxnumf"]
