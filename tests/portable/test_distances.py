"""Distances of rows and their gradients against the CPU: norms, layouts, sizes without elements, errors."""

from functools import partial

import pytest
import torch

from portable.compare import each, same_error, same_with_gradients

each_dtype = pytest.mark.parametrize("dtype", each([torch.float32, torch.float64]))
NORMS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]
check = partial(same_with_gradients, tolerance={torch.float32: 2e-5, torch.float64: 1e-10})


def rows(*shape, dtype=torch.float32):
    """Small whole numbers in part: some differences are 0, and some rows are equal."""
    x = torch.randn(shape, dtype=dtype)
    return torch.where(x.abs() > 1, x.round(), x).contiguous()


@each_dtype
@pytest.mark.parametrize("p", NORMS)
def test_cdist(device, ran, p, dtype):
    x, y = rows(5, 3, dtype=dtype), rows(4, 3, dtype=dtype)
    y[1] = x[2]
    with ran("_cdist_forward"), ran("_cdist_backward"):
        check(device, lambda a, b: torch.cdist(a, b, p), x, y)
        check(device, lambda a, b: torch.cdist(a.mT, b.mT, p), rows(2, 3, 5, dtype=dtype), rows(1, 3, 4, dtype=dtype))


def test_cdist_of_many_rows_is_a_product(device):
    x, y = torch.randn(40, 8), torch.randn(30, 8)
    for mode in ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        check(device, lambda a, b, m=mode: torch.cdist(a, b, compute_mode=m), x, y)


@each_dtype
@pytest.mark.parametrize("p", NORMS)
def test_pdist(device, ran, p, dtype):
    x = rows(6, 4, dtype=dtype)
    x[4] = x[1]
    with ran("_pdist_forward"), ran("_pdist_backward"):
        check(device, lambda a: torch.nn.functional.pdist(a, p), x)


@pytest.mark.parametrize("shapes", [((0, 3), (4, 3)), ((5, 3), (0, 3)), ((5, 0), (4, 0)), ((0, 5, 3), (0, 4, 3))])
def test_none(device, shapes):
    check(device, torch.cdist, *(torch.randn(shape) for shape in shapes))


def test_pairs_of_no_row(device):
    # The CPU's own backward divides by zero rows.
    x = torch.randn(0, 3, device=device, requires_grad=True)
    y = torch.nn.functional.pdist(x)
    y.sum().backward()
    assert y.shape == (0,)
    assert x.grad.shape == (0, 3)
    check(device, torch.nn.functional.pdist, torch.randn(1, 3))


def test_errors_are_the_cpus(device):
    for call in (
        lambda x: torch.cdist(x, x[:, :2]),
        lambda x: torch.cdist(x, x, -1.0),
        lambda x: torch.cdist(x, x.double()),
        lambda x: torch.nn.functional.pdist(x[0]),
    ):
        same_error(device, call, torch.randn(4, 3))
