"""torch.compile of lists of tensors, and with ``config.combo_kernels``: kernels that are one launch."""

import re

import pytest
import torch
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

from portable.compare import each
from torch_backplane.compat import inductor
from torch_backplane.inductor import scheduling

SHAPES = [(64, 64), (64,), (128, 64), (7, 3), (), (1000,), (0, 5), (2, 3, 4), (5000, 3), (1,)]
pytestmark = pytest.mark.usefixtures("each_compiles")


def moved(values, device):
    return [one.to(device) for one in values]


def launches(code):
    """How many there are in a module that Inductor wrote."""
    return len(re.findall(r"^ {8}\w+_fused_\w*\(", code, re.MULTILINE))


def run(function, device, *lists, **options):
    """The function's results on the device, equal to the CPU's, and the module; lists may be changed by it."""
    there = [moved(values, device) for values in lists]
    got, (code,) = run_and_get_code(torch.compile(function, **options), *there)
    wanted = function(*lists)
    for values, theirs in zip((*there, got), (*lists, wanted), strict=True):
        for one, other in zip(values, theirs, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-5)
    return code


def numbers(shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(shape, generator=generator) * 9).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool], ids=str)
def test_a_list_is_one_launch(device, dtype):
    def function(x, y):
        return torch._foreach_mul(torch._foreach_maximum(x, y), 1)

    code = run(function, device, numbers(SHAPES, dtype), numbers(reversed(SHAPES[::-1]), dtype))
    assert launches(code) == 1


def test_parts_that_read_alike_share_their_text(device):
    def function(x):
        return torch._foreach_sqrt(torch._foreach_abs(x))

    # Tiles of a core are as long as the tensor, up to 1024; a thread's are of 4.
    code = run(function, device, numbers([(1024,), (3000,), (64, 64), (8, 16, 32), (5, 1000)]))
    assert launches(code) == 1
    assert code.count("bp_sqrt(") == 2  # whole tiles, and the rest


def test_lists_are_changed_in_place(device):
    def function(x, y):
        torch._foreach_add_(x, y, alpha=-0.5)
        torch._foreach_mul_(y, 2.0)
        return torch._foreach_addcmul(x, y, y, value=0.1)

    assert launches(run(function, device, numbers(SHAPES), numbers(SHAPES)[::1])) == 1


def test_hooks_of_each_result_have_kernels_of_their_own(device):
    with config.patch(generate_intermediate_hooks=True):
        assert launches(run(lambda x: torch._foreach_sqrt(torch._foreach_abs(x)), device, numbers([(3,), (5,)]))) == 2


def test_what_of_a_list_is_a_call_is_no_part(device):
    """A power of whole numbers is the device's operator, one of floats a kernel."""
    x = [torch.arange(4), torch.arange(9).view(3, 3), torch.rand(5), torch.rand(7)]
    code = run(lambda x, y: torch._foreach_pow(x, y), device, x, [torch.full_like(one, 3) for one in x])
    assert launches(code) == 1
    assert code.count("= torch.ops.aten.pow.Tensor_Tensor(") == 2


def test_tensors_lie_in_memory_as_they_may(device):
    x = [torch.randn(33, 65).t(), torch.randn(40, 40)[::2, 1:], torch.randn(3).expand(5, 3), torch.randn(2, 8, 5, 5)]
    x[3] = x[3].to(memory_format=torch.channels_last)
    y = [torch.randn_like(one) for one in x]

    def function(x, y):
        return torch._foreach_add(torch._foreach_exp(x), y)

    assert launches(run(function, device, x, y)) == 1


def test_more_tensors_than_a_launch_takes_are_several(device):
    def function(x, y):
        return torch._foreach_add(x, y)

    shapes = [(i,) for i in range(1, 101)]
    code = run(function, device, numbers(shapes), numbers(shapes))
    assert launches(code) == 5  # of 20, which have 60 tensors


def test_a_length_that_varies_does_not_compile_again(device):
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("inductor")
    call = torch.compile(lambda x, y: torch._foreach_mul(x, y), backend=counter, dynamic=True)
    for n in (3, 1000, 77):
        x, y = numbers([(n,), (n, 5), (2, n + 1)]), numbers([(n,), (n, 5), (2, n + 1)])
        for one, a, b in zip(call(moved(x, device), moved(y, device)), x, y, strict=True):
            torch.testing.assert_close(one.cpu(), a * b)
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", each(["SGD", "AdamW", "RAdam", "RMSprop", "Adagrad", "Adadelta"]))
def test_an_optimizers_step_is_few_launches(device, name):
    """With 8 parameters; what depends on their step only is computed before the loops."""
    options = {"momentum": 0.9} if name == "SGD" else {}

    def steps(device, wrap):
        parameters = [torch.nn.Parameter(one.to(device)) for one in numbers([(65, 33), (33,)] * 4)]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.01, foreach=True, **options)
        for one, gradient in zip(parameters, numbers([(65, 33), (33,)] * 4)[::-1], strict=True):
            one.grad = gradient.sum().to(device) * one.detach().cos()
        step = wrap(optimizer.step)
        step()
        codes = run_and_get_code(step)[1] if device != "cpu" else optimizer.step()
        return [one.detach().cpu() for one in parameters], codes

    got, codes = steps(device, torch.compile)
    wanted, _ = steps("cpu", lambda step: step)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert 1 <= sum(map(launches, codes)) <= 4
    if name == "AdamW":
        loops = [text.split("}")[0] for text in codes[-1].split("LANE")[1:]]
        assert "bp_pow" in codes[-1]
        assert "bp_sqrt" in "".join(loops)
        assert "bp_pow" not in "".join(loops)


def test_kernels_of_a_program_are_combined_where_that_is_wanted(device):
    def function(x, y, z):
        return x.sin(), y.cos(), x.sum(0), (y + 1).amax(1), y.softmax(1), z.cumsum(0), z.float().mean(), x.t() + 1

    def listed(values):
        return function(*values)

    values = [torch.randn(8, 700), torch.randn(130, 5), torch.arange(50)]
    alone = run(listed, device, values)
    with config.patch(combo_kernels=True):
        combined = run(listed, device, values)
    assert launches(combined) < launches(alone)


@pytest.mark.parametrize("order", [1, -1])
def test_each_part_has_its_own_tiles(device, order):
    """Elements of a tile, and few rows that are long. A scan, whose arrays are as large as a tile, is a launch."""

    def listed(values):
        few, rows, scanned, many = values
        return [few.sin(), rows.sum(1), rows.amax(1) + 1, scanned.cumsum(1), many.cos()][::order]

    values = [torch.randn(3), torch.randn(4, 3000), torch.randn(6, 900), torch.randn(5000)]
    with config.patch(combo_kernels=True):
        code = run(listed, device, values)
    assert [kernel for kernel in code.split("BP_KERNEL")[1:] if "scan" in kernel and "p1_" in kernel] == []
    if not scheduling.splits_reductions(device):
        assert launches(code) == 2


def test_a_wrong_index_of_a_part_is_an_error(device):
    def function(x, i, y):
        return x[i], y.sin()

    x, y = torch.randn(8, device=device), torch.randn(300, device=device)
    with config.patch(combo_kernels=True):
        call = torch.compile(function)
        got, _ = call(x, torch.tensor([1, -8], device=device), y)
        assert torch.equal(got, x[[1, 0]])
        with pytest.raises(IndexError, match="index -9 is out of range for 8 elements"):
            call(x, torch.tensor([1, -9], device=device), y)[0].cpu()


def test_what_parts_write_is_checked_for_nan(device):
    call = torch.compile(lambda x: torch._foreach_log(x))
    with config.patch(nan_asserts=True):
        assert call([torch.ones(3, device=device)] * 2)[0].tolist() == [0, 0, 0]
        with pytest.raises(AssertionError):
            call([torch.ones(3, device=device), -torch.ones(3, device=device)])


@pytest.mark.long
@pytest.mark.skipif(not inductor.has_cpp_wrapper(), reason="torch before 2.13")
def test_cpp_launches_parts_together(device):
    x = numbers(SHAPES)
    with config.patch(cpp_wrapper=True):
        got, (code,) = run_and_get_code(torch.compile(lambda x: torch._foreach_mul(x, 2.5)), moved(x, device))
    for one, value in zip(got, x, strict=True):
        torch.testing.assert_close(one.cpu(), value * 2.5)
    assert len(re.findall(r"^ *\w+_fused_\w+\.launch\(", code, re.MULTILINE)) == 1
