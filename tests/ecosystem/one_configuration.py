"""``with one_configuration():`` around an import: the library's autotuned kernels have their smallest configuration.

Values do not depend on it, and a library's lists are made for other chips: to compile them all takes minutes.
"""

import math
from contextlib import contextmanager

from triton.runtime.autotuner import Autotuner


def size(configuration):
    """Of a configuration's tiles."""
    return math.prod(value for value in configuration.kwargs.values() if isinstance(value, int) and value > 0)


@contextmanager
def one_configuration():
    made = Autotuner.__init__

    def with_one(self, fn, arg_names, configs, *args, **kwargs):
        made(self, fn, arg_names, [min(configs, key=size)] if configs else [], *args, **kwargs)

    Autotuner.__init__ = with_one
    try:
        yield
    finally:
        Autotuner.__init__ = made
