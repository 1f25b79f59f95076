"""Random functions under torch.compile against eager on the CPU (graphs.py): values, changed inputs, gradients.

``PROGRAMS=0-2000 pytest tests/portable/test_compile_programs.py`` runs others; each is the same whenever it is run.
"""

import os

import pytest
import torch
from torch.overrides import TorchFunctionMode

from tests.portable import graphs

FIRST, LAST = map(int, os.environ.get("PROGRAMS", "0-60").split("-"))
EAGER = 6  # so many are no long test


@pytest.fixture(autouse=True)
def each_compiles(request):
    """Every second time kernels that do not depend on each other are one."""
    torch._dynamo.reset()
    combined = request.node.callspec.params["seed"] % 2 == 1
    with torch._inductor.config.patch(force_disable_caches=True, combo_kernels=combined):
        yield


class InFloat64(TorchFunctionMode):
    """What would become a shorter float becomes float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name == "float":
            return args[0].double()
        if name == "to" and len(args) > 1 and isinstance(args[1], torch.dtype) and args[1].is_floating_point:
            args = args[0], torch.float64
        return function(*args, **(kwargs or {}))


def exactly(run, inputs):
    """The same in float64."""
    with InFloat64():
        return run(*(one.double() if one.is_floating_point() else one.clone() for one in inputs))


def assert_near(got, wanted, exact, has_halves):
    """As near as the CPU's own result is to the one in float64; what rounding decides is left out."""
    got = got.cpu()
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if not wanted.is_floating_point():
        if not has_halves and torch.equal(exact.to(wanted.dtype), wanted):
            assert torch.equal(got, wanted)
        return
    got, wanted, exact = got.double(), wanted.double(), exact.double()
    largest = wanted.abs().nan_to_num(0, 0, 0).amax()
    allowed = (3e-2 if has_halves else 1e-4) * (1 + largest) + 30 * (wanted - exact).abs().nan_to_num(0, 0, 0)
    good = ((got - wanted).abs() <= allowed) | (got == wanted) | (got.isnan() & wanted.isnan())
    assert good.all(), (
        f"{int((~good).sum())} of {good.numel()} differ by up to {(got - wanted).abs().amax()} of {largest}"
    )


def settings_of(seed):
    return {"dynamic": (None, True, False)[seed % 3]}


def marked(seeds):
    return [pytest.param(seed, marks=pytest.mark.long) if k >= EAGER else seed for k, seed in enumerate(seeds)]


@pytest.mark.parametrize("seed", marked(range(FIRST, LAST)))
def test_F14_a_random_function(device, seed):
    program = graphs.draw(seed)
    inputs = [one.clone() for one in program.inputs]
    wanted, exact = program(*inputs), exactly(program, program.inputs)
    changed = [one.to(device) for one in program.inputs]
    got = torch.compile(program, **settings_of(seed))(*changed)
    try:
        for one, expected, real in zip(got, wanted, exact, strict=True):
            assert_near(one, expected, real, program.has_halves())
        for one, expected in zip(changed, inputs, strict=True):
            assert_near(one, expected, expected, program.has_halves())
    except AssertionError as error:
        raise AssertionError(f"{error}\n{program}") from None


@pytest.mark.parametrize("seed", marked(range(FIRST, LAST)))
def test_F14_the_gradient_of_a_random_function(device, seed):
    program = graphs.draw(seed)
    wanted, exact = program.gradients(*program.inputs), exactly(program.gradients, program.inputs)
    got = torch.compile(program.gradients, **settings_of(seed))(*(one.to(device) for one in program.inputs))
    try:
        for one, expected, real in zip(got, wanted, exact, strict=True):
            assert_near(one, expected, real, program.has_halves())
    except AssertionError as error:
        raise AssertionError(f"{error}\n{program}") from None
