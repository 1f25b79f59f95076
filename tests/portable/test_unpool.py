"""Unpooling and fractional pools against the CPU."""

import pytest
import torch
import torch.nn.functional as F

from portable.compare import each, same, with_gradients

each_dtype = pytest.mark.parametrize("dtype", each([torch.float32, torch.float64]))


@each_dtype
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max_unpool(device, ran, dims, dtype):
    pool = getattr(F, f"max_pool{dims}d")
    unpool = getattr(F, f"max_unpool{dims}d")
    for shape in ((2, 3, *(6, 4, 8)[:dims]), (3, *(4, 6, 4)[:dims])):
        x, places = pool(torch.randn(shape, dtype=dtype), 2, return_indices=True)
        expected = with_gradients(unpool, "cpu", x, places, 2, leaves=1)
        with ran(f"max_unpool{max(dims, 2)}d"):
            got = with_gradients(unpool, device, x, places, 2, leaves=1)
        same(got, expected, 0)


def test_max_unpool_keeps_the_format_and_takes_out(device):
    x, places = F.max_pool2d(torch.randn(2, 3, 6, 6), 2, return_indices=True)
    for like in (torch.contiguous_format, torch.channels_last):
        inputs = [t.contiguous(memory_format=like) for t in (x, places)]
        same(F.max_unpool2d(*(t.to(device) for t in inputs), 2), F.max_unpool2d(*inputs, 2), 0)
    out = torch.empty(0, device=device)
    torch.ops.aten.max_unpool2d.out(x.to(device), places.to(device), [6, 6], out=out)
    same(out, torch.ops.aten.max_unpool2d(x, places, [6, 6]), 0)


def test_a_place_beyond_the_result_is_an_error(device):
    places = torch.tensor([[[[0, 99]]]], device=device)
    with pytest.raises(RuntimeError, match="index 99 is out of bounds"):
        F.max_unpool2d(torch.ones(1, 1, 1, 2, device=device), places, 2).cpu()


@pytest.mark.usefixtures("deterministic")
def test_of_places_that_repeat_the_last_wins_where_it_is_asked(device):
    x, places = torch.arange(12.0).reshape(1, 1, 3, 4), torch.arange(12).reshape(1, 1, 3, 4) // 5
    expected = torch.zeros(1, 1, 6, 8)  # the CPU's threads race
    expected[0, 0, 0, :3] = torch.tensor([4.0, 9.0, 11.0])
    same(F.max_unpool2d(x.to(device), places.to(device), 2), expected, 0)


@pytest.mark.parametrize("sample", [50000004.0, -50000004.0])
def test_a_sample_that_puts_a_window_beyond_the_input_is_an_error(device, sample):
    samples = torch.full((1, 1, 2), sample, device=device)
    with pytest.raises(IndexError, match=r"fractional_max_pool: index .* is out of range for 6 elements"):
        F.fractional_max_pool2d(torch.ones(1, 1, 7, 7, device=device), 2, 4, _random_samples=samples).cpu()
    torch.accelerator.synchronize()


@each_dtype
@pytest.mark.parametrize("dims", [2, 3])
def test_fractional_max_pool(device, ran, dims, dtype):
    pool = getattr(F, f"fractional_max_pool{dims}d")
    name = f"fractional_max_pool{dims}d"
    for shape, window, count in (
        ((2, 3, *(7, 9, 8)[:dims]), 2, (4, 5, 3)[:dims]),
        ((3, *(6, 6, 9)[:dims]), (3, 2, 1)[:dims], (1, 4, 8)[:dims]),
    ):
        x = torch.randn(shape, dtype=dtype)
        x.flatten()[5] = float("nan")
        samples = torch.rand(shape[0] if len(shape) == dims + 2 else 1, 3, dims, dtype=dtype)
        results = []
        for place in ("cpu", device):
            leaf = x.to(place).detach().requires_grad_()
            args = {"output_size": count, "_random_samples": samples.to(place), "return_indices": True}
            if place == "cpu":
                y, places = pool(leaf, window, **args)
                y.nansum().backward()
            else:
                with ran(name):
                    y, places = pool(leaf, window, **args)
                with ran(f"{name}_backward"):
                    y.nansum().backward()
            results.append((y.detach(), places, leaf.grad))
        same(results[1], results[0], 0)
