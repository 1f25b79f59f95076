"""Combinations of a test's parameters, of which a part is long."""

import itertools

import pytest


def sampled(every, *values):
    """All combinations; all but each ``every``-th are long. An ``every`` prime to the lengths leaves no value out."""
    combinations = enumerate(itertools.product(*values))
    return [pytest.param(*one, marks=[pytest.mark.long] if i % every else [], id=_id(one)) for i, one in combinations]


def _id(values):
    return "-".join(getattr(value, "__name__", str(value)) for value in values)
