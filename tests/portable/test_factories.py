"""Sequences and unit matrices against the CPU."""

import warnings
from functools import partial

import pytest
import torch

from portable.compare import ALL, NUMBERS, each, same, same_error

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float64: 1e-12}
check = partial(same, tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", each(NUMBERS, torch.float32, torch.bfloat16, torch.int64))
def test_sequences(device, ran, dtype):
    whole = [(0, 10), (5, 100, 7), (60, 20, -9), (3, 3), (0, 120, 1)]
    parts = [(0, 1, 0.1), (1, -1, -0.3), (-2.5, 2.5)] if dtype.is_floating_point else []
    for arguments in whole + parts:
        with ran("arange.start_out"):
            check(torch.arange(*arguments, dtype=dtype, device=device), torch.arange(*arguments, dtype=dtype))
    if not dtype.is_floating_point:
        return
    for count in (0, 1, 2, 7, 100):
        with ran("linspace.out"):
            got = torch.linspace(-3, 5, count, dtype=dtype, device=device)
        expected = torch.linspace(-3, 5, count, dtype=dtype if dtype.itemsize > 2 else torch.float32)
        check(got, expected.to(dtype))  # the CPU rounds the step of half types
        if dtype.itemsize > 2:
            with ran("logspace.out"):
                got = torch.logspace(-2, 1, count, base=2.0, dtype=dtype, device=device)
            check(got, torch.logspace(-2, 1, count, base=2.0, dtype=dtype))


@pytest.mark.parametrize("dtype", each(ALL, torch.float32, torch.bool))
def test_unit_matrices(device, ran, dtype):
    with ran("eye.m_out"):
        check(torch.eye(3, 5, dtype=dtype, device=device).float(), torch.eye(3, 5, dtype=dtype).float())
        check(torch.eye(0, dtype=dtype, device=device).float(), torch.eye(0, dtype=dtype).float())
    with ran("eye.out"):
        out = torch.empty(0, dtype=dtype, device=device)
        check(torch.eye(4, out=out).float(), torch.eye(4, dtype=dtype).float())


def test_out_tensors(device):
    for place in ("cpu", device):
        strided = torch.zeros(10, 2, device=place)
        torch.arange(10, out=strided[:, 0])
        assert strided.sum().item() == 45
        torch.linspace(-2, -3, 10, out=strided[:, 1])
        torch.testing.assert_close(strided[:, 1].cpu(), torch.linspace(-2, -3, 10))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # another size is no mistake here
            assert torch.linspace(0, 1, 3, out=torch.zeros(7, device=place)).shape == (3,)
        matrix = torch.zeros(2, 5, device=place)
        torch.arange(10, out=matrix)
        assert matrix.cpu()[1].tolist() == [5, 6, 7, 8, 9]


def test_errors_are_the_cpus(device):
    x = torch.empty(0)  # whose device they take
    for call in (
        lambda x: torch.arange(0, 5, 0, device=x.device),
        lambda x: torch.arange(0, 5, -1, device=x.device),
        lambda x: torch.linspace(0, 1, -1, device=x.device),
        lambda x: torch.eye(-1, device=x.device),
    ):
        same_error(device, call, x)
