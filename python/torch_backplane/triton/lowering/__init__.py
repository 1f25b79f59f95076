"""TTIR becomes a kernel of the dialect.

A value of a block is an expression of its index until something needs it as an array (forms.py, uses.py). Operations
that are no expressions write loops (nest.py), in which the expressions that they need are computed. Each file below has
the operations of a subject; :mod:`kernel` puts the text together.
"""

from torch_backplane.triton.lowering import atomics, control, elementwise, memory, messages, products, reductions
from torch_backplane.triton.lowering.kernel import Kernel, lower

__all__ = ["Kernel", "atomics", "control", "elementwise", "lower", "memory", "messages", "products", "reductions"]
