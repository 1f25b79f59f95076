"""Random functions under torch.compile against eager on the CPU (graphs.py): values, changed inputs, gradients.

``PROGRAMS=0-2000 pytest tests/portable/test_compile_programs.py`` runs others; each is the same whenever it is run.
``make fuzz ARGS=--compiled`` runs thousands, and reduces what it finds.
"""

import os

import pytest

from portable import graphs

FIRST, LAST = map(int, os.environ.get("PROGRAMS", "0-60").split("-"))
SHORT = 3  # so many are not long


def marked(seeds):
    return [pytest.param(seed, marks=pytest.mark.long) if k >= SHORT else seed for k, seed in enumerate(seeds)]


@pytest.mark.parametrize("seed", marked(range(FIRST, LAST)))
def test_F14_a_random_function(device, seed):
    graphs.check(graphs.draw(seed), device, seed)


# Of 43 torch raises "NYI SymInt equality", and 33 is NaN, for the CPU as well.
@pytest.mark.parametrize("seed", marked(seed for seed in range(FIRST, LAST) if seed not in (33, 43)))
def test_F14_the_gradient_of_a_random_function(device, seed):
    graphs.check_gradients(graphs.draw(seed), device, seed)
