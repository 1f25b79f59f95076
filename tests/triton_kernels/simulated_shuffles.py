"""A plugin of pytest: kernels exchange values by shuffles of subgroups.

The simulated device has none: a shuffle is written in the dialect's other words, an array and barriers.
"""

import dataclasses

import triton  # noqa: F401  # which imports the compiler

from torch_backplane.triton import compiler

SUBGROUP = 8
_SHUFFLE = """
static __thread u32 bt_shuffled[BP_GROUP];
#define BP_SHUFFLE_XOR(x, mask) ({ \\
  BP_BARRIER(); \\
  bt_shuffled[BP_ITEM] = (x); \\
  BP_BARRIER(); \\
  bt_shuffled[BP_ITEM ^ (mask)]; })
"""
_lower = compiler.lower


def lower(ttir, items, subgroup):
    kernel = _lower(ttir, items, SUBGROUP)
    return dataclasses.replace(kernel, text=_SHUFFLE + kernel.text)


compiler.lower = lower
