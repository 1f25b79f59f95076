"""Halves: rows of them that a core converts, every one of them, their bits, and wider numbers beside them."""

import platform

import pytest
import torch

from portable.compare import each
from portable.pointwise import compare, tensor


# A core converts halves row by row; its rows end at 512 elements.
@pytest.mark.parametrize("columns", each([7, 513, 1, 511, 1029, 2048], 7, 513))
def test_rows_of_halves(device, columns):
    x, y = tensor((3, columns), torch.float16, 0), tensor((3, columns), torch.float16, 1)
    wide = torch.randn(3, 2 * columns).half()
    pairs = [
        (x, y),
        (x, y[:1]),
        (x, y[:, :1]),
        (x, wide[:, ::2]),
        (wide[:, 1 : columns + 1], x),
        (x.t(), y.t().contiguous()),
        (x, y.float()),
        (x, y[0, 0]),
    ]
    for a, b in pairs:
        left, right = (wide.to(device)[:, 1 : columns + 1] if t.storage_offset() else t.to(device) for t in (a, b))
        compare(left * right, a * b)
        compare(left < right, a < b)
        compare(torch.add(left, right, out=torch.empty(0, device=device)), torch.add(a, b, out=torch.empty(0)))
    strided = torch.zeros(3, columns, 2, dtype=torch.float16, device=device)[..., 0]
    torch.add(x.to(device), y.to(device), out=strided)
    compare(strided, x + y)
    own = x.to(device)
    own.mul_(own).add_(y.to(device), alpha=2)
    compare(own, (x * x).add_(y, alpha=2))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize("level", each(["x86-64-v3", "x86-64-v2", "x86-64"]))
def test_rows_of_halves_on_older_processors(run_in_process, device, level):
    """An older level has no masked vectors, and the oldest ones none for halves. Nothing beside a row is written."""
    code = f"""
        import torch

        for columns in range(1, 36):
            x, y = torch.randn(20, columns).half(), torch.randn(columns).half()
            wide = torch.full((20, columns + 3), 7, dtype=torch.half, device="{device.type}")
            torch.mul(x.to(wide.device), y.to(wide.device), out=wide[:, 1 : columns + 1])
            expected = torch.full((20, columns + 3), 7, dtype=torch.half)
            expected[:, 1 : columns + 1] = x * y
            assert torch.equal(wide.cpu(), expected), columns
        print("done")
    """
    assert run_in_process(code, options=f"target={level}").stdout.strip() == "done"


def test_every_half_is_converted_alone(device):
    """Where an index chooses each element, a core converts single halves: all of them, and sums between two halves."""
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    added = torch.randn(2**16).half()
    order = torch.randperm(2**16)
    got = halves.to(device).index_add(0, order.to(device), added.to(device))
    torch.testing.assert_close(got.cpu(), halves.index_add(0, order, added), rtol=0, atol=0, equal_nan=True)


def test_every_half_is_converted(device):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    halves = bits.view(torch.float16)
    x = halves.to(device)
    expected = halves.float()
    assert torch.equal(
        x.float().cpu().view(torch.int32)[~expected.isnan()], expected.view(torch.int32)[~expected.isnan()]
    )
    assert torch.equal(x.float().isnan().cpu(), expected.isnan())
    again = x.float().half().cpu()
    assert torch.equal(again.view(torch.int16)[~expected.isnan()], bits[~expected.isnan()])
    between = torch.cat([expected * (1 + k / 2**12) for k in (-3, -2, -1, 1, 2, 3)] + [torch.randn(1000) * 1e-6])
    for f in (lambda t: t, lambda t: t[::3], lambda t: t.reshape(2, -1).t()):
        got = f(between.to(device)).half().cpu()
        torch.testing.assert_close(got, f(between).half(), rtol=0, atol=0, equal_nan=True)
        compare(f(x).float(), f(halves).float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_operators_of_the_bits_of_halves(device, ran, dtype):
    x, y = tensor((4, 6), dtype, 0), tensor((4, 6), dtype, 1)
    out = torch.empty(0, dtype=dtype, device=device)
    for name, call in {
        "abs": lambda t, u: t.abs(),
        "neg": lambda t, u: -t.t(),
        "copysign.Tensor": lambda t, u: torch.copysign(t, u[:1]),
    }.items():
        with ran(name):
            got = call(x.to(device), y.to(device))
        expected = call(x, y)
        assert got.dtype == dtype
        compare(got, expected)
        assert torch.equal(got.cpu().signbit() | expected.isnan(), expected.signbit() | expected.isnan())
    torch.neg(x.to(device), out=out)
    compare(out, -x)
    compare(torch.copysign(x.to(device), y.to(device).float()), torch.copysign(x, y.float()))
    compare(x.to(device).neg_(), -x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_wide_number_beside_halves_keeps_its_value_as_the_second(device, ran, dtype):
    """As the CPU; as the first it is a half. 1e6 is beyond float16, 1e-9 rounds to 0 there."""
    x = torch.tensor([1e-3, 2.0, 60000.0], dtype=dtype)
    for number in (torch.tensor(1e6), torch.tensor(1e-9, dtype=torch.float64), torch.tensor(3.1)):
        for op in (torch.mul, torch.div):
            for first, second in ((x, number), (number, x)):
                with ran(f"{op.__name__}.Tensor"):
                    on_device = op(first.to(device), second.to(device))
                on_host = op(*(operand.to(device) if operand is x else operand for operand in (first, second)))
                compare(on_device, op(first, second))
                compare(on_host, op(first, second))
