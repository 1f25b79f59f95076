"""torch.compile by Inductor's kernels in the dialect, against eager on the CPU; torch_backplane.inductor."""

import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch._inductor import config
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_backplane import _backend, compiler

ROWS = 64, 129


@pytest.fixture(autouse=True, scope="module")
def each_compiles():
    """What another test compiled is not taken from Inductor's cache: its kernels would be there, but not generated."""
    with config.patch(force_disable_caches=True):
        yield


def real(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype)


def same(got, wanted, tolerance):
    if isinstance(wanted, torch.Tensor):
        got, wanted = [got], [wanted]
    torch.testing.assert_close([one.cpu() for one in got], list(wanted), rtol=tolerance, atol=tolerance, equal_nan=True)


def compiled(function, device, arguments, **settings):
    torch._dynamo.reset()
    return torch.compile(function, **settings)(*(one.to(device) for one in arguments))


# A function, what makes its arguments, and how far the results may be apart.
FORWARD = {
    "pointwise": (lambda x: (x * 2 + 1).tanh().exp(), lambda: [real(*ROWS)], 1e-5),
    "sum of rows": (lambda x: x.sum(1), lambda: [real(*ROWS)], 1e-4),
    "sum of columns": (lambda x: x.sum(0), lambda: [real(*ROWS)], 1e-4),
    "sum of all": (lambda x: x.sum(), lambda: [real(300, 1000)], 1e-3),
    "sums of the outer and the inner": (lambda x: x.sum((0, 2)), lambda: [real(5, 6, 7)], 1e-4),
    "softmax of rows": (lambda x: x.softmax(1), lambda: [real(*ROWS)], 1e-5),
    "softmax of columns": (lambda x: x.softmax(0), lambda: [real(*ROWS)], 1e-5),
    "log softmax of long rows": (lambda x: x.log_softmax(1), lambda: [real(4, 5000)], 1e-4),
    "layer norm": (lambda x: F.layer_norm(x, (129,)), lambda: [real(*ROWS)], 1e-4),
    "variance and mean": (lambda x: torch.var_mean(x, 1), lambda: [real(*ROWS)], 1e-4),
    "variance of columns": (lambda x: x.var(0), lambda: [real(*ROWS)], 1e-4),
    "places of extremes": (lambda x: (x.argmax(1), x.argmin(0), x.max(1)[0]), lambda: [real(*ROWS)], 0),
    "first of equal extremes": (lambda x: (x.argmax(1), x.argmin(1)), lambda: [torch.ones(7, 100)], 0),
    "any, all, products": (
        lambda x: ((x > 0).any(1), (x > 0).all(0), x.prod(1), x.amin(0)),
        lambda: [real(8, 40)],
        1e-4,
    ),
    "NaN wins": (
        lambda x: (x.amax(1), x.argmax(1), torch.maximum(x, x.flip(1))),
        lambda: [torch.tensor([[1.0, torch.nan, 3.0], [1.0, 2.0, torch.inf]])],
        0,
    ),
    "transposed": (lambda x: x.t() + x.t().flip(0), lambda: [real(*ROWS)], 0),
    "of two layouts": (
        lambda x: (x[:, :70].t() + x[:70, :70], x[:, :70].t().exp() * x[:70, :70].t()),
        lambda: [real(70, 131)],
        1e-5,
    ),
    "of two layouts, in half": (
        lambda x: x.transpose(1, 2) + x.permute(0, 1, 2)[:, :70],
        lambda: [real(3, 70, 70, dtype=torch.bfloat16)],
        1e-2,
    ),
    "permuted": (lambda x: x.permute(2, 0, 1).contiguous() + 1, lambda: [real(5, 6, 7)], 0),
    "broadcast": (lambda x: (x[:, None, :] * x[None, :, :]).mean((0, 2)), lambda: [real(8, 16)], 1e-5),
    "strided": (lambda x: torch.where(x > 0, x, -x)[:, ::2], lambda: [real(*ROWS)], 0),
    "masked loads": (lambda x: F.pad(torch.cat([x, x * 2], 1), (1, 2)), lambda: [real(*ROWS)], 0),
    "a part of a square": (lambda x: x.tril() + x.triu(), lambda: [real(16, 16)], 0),
    "gathered": (lambda x, i: x[i], lambda: [real(*ROWS), torch.tensor([3, -1, 5])], 0),
    "summed into places": (
        lambda x, i: torch.zeros(64, device=x.device).index_put((i,), x[:3, 0], accumulate=True),
        lambda: [real(*ROWS), torch.tensor([3, 3, 5])],
        1e-6,
    ),
    "summed into places, double": (
        lambda x, i: torch.zeros(64, 9, device=x.device, dtype=x.dtype).scatter_add(0, i, x),
        lambda: [real(64, 9, dtype=torch.float64), torch.randint(0, 64, (64, 9))],
        1e-9,
    ),
    "max pool": (lambda x: F.max_pool2d(x, 2), lambda: [real(2, 3, 8, 8)], 0),
    "a product with what follows it": (lambda x: (x @ x.t()).relu(), lambda: [real(*ROWS)], 1e-3),
    "a convolution with what follows it": (
        lambda x, w: F.conv2d(x, w).relu(),
        lambda: [real(2, 3, 8, 8), real(4, 3, 3, 3)],
        1e-3,
    ),
    "what has no lowering": (lambda x: (x.sort(1)[0], x.cumsum(1)), lambda: [real(*ROWS)], 1e-3),
    "bfloat16": (lambda x: (x * 3).relu() + 1, lambda: [real(*ROWS, dtype=torch.bfloat16)], 1e-2),
    "float16": (
        lambda x: (x.softmax(1), x.sum(1), x.exp()),
        lambda: [real(*ROWS, dtype=torch.float16)],
        1e-2,
    ),
    "float64": (lambda x: (x.sin() * 2).sum(1), lambda: [real(*ROWS, dtype=torch.float64)], 1e-12),
    "integers": (lambda i: (i // 3, i % 5, i * 2 - 7, i >> 1, i << 2), lambda: [torch.arange(-20, 20)], 0),
    "bits": (lambda i: (i & 3, i | 8, i ^ 5, ~i), lambda: [torch.arange(-20, 20)], 0),
    "bytes wrap": (lambda i: (i + 200, i * 3, i // 7), lambda: [torch.arange(0, 40, dtype=torch.uint8)], 0),
    "a number on the CPU": (lambda x: x * torch.tensor(2.0), lambda: [real(*ROWS)], 0),
    "rounding": (lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.frac()), lambda: [real(*ROWS)], 1e-6),
    "remainders": (lambda x: (x % 0.7, torch.fmod(x, 0.7), x // 0.7), lambda: [real(*ROWS)], 1e-4),
    "powers": (
        lambda x: (x.abs() ** 1.5, x**3, x.abs().rsqrt(), torch.hypot(x, x), torch.atan2(x, x + 1)),
        lambda: [real(*ROWS)],
        1e-4,
    ),
    "gelu and erf": (lambda x: (F.gelu(x), x.erf()), lambda: [real(*ROWS)], 1e-5),
    "special functions": (
        lambda x: (x.abs().lgamma(), x.erfinv(), torch.special.i0(x), x.abs().digamma()),
        lambda: [real(*ROWS).clamp(-0.9, 0.9) + 0.01],
        1e-4,
    ),
    "norms": (lambda x: (x.std(0), x.norm(dim=1)), lambda: [real(*ROWS)], 1e-4),
    "places, so many": (lambda x: torch.nonzero_static(x > 0, size=5) + 1, lambda: [real(3, 4)], 0),
    "no elements": (lambda x: (x + 1, x.sum(1)), lambda: [real(3, 0)], 0),
}


@pytest.mark.parametrize("case", FORWARD)
def test_F14_forward(case, device):
    function, make, tolerance = FORWARD[case]
    arguments = make()
    same(compiled(function, device, arguments), function(*arguments), tolerance)


def gradients(function):
    def both(*arguments):
        arguments = [one.detach().clone().requires_grad_(one.is_floating_point()) for one in arguments]
        function(*arguments).float().pow(2).sum().backward()
        return [one.grad for one in arguments if one.grad is not None]

    return both


BACKWARD = {
    "layer norm": (lambda x, w, b: F.layer_norm(x, (129,), w, b), lambda: [real(*ROWS), real(129), real(129)]),
    "softmax": (lambda x: x.softmax(1), lambda: [real(*ROWS)]),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), lambda: [real(4, 8, 5, 5)]),
    "group norm": (lambda x: F.group_norm(x, 2), lambda: [real(4, 8, 5, 5)]),
    "embedding": (lambda w: F.embedding(torch.tensor([1, 1, 3], device=w.device), w), lambda: [real(8, 16)]),
    "gelu": (lambda x: F.gelu(x), lambda: [real(*ROWS)]),
    "cross entropy": (
        lambda x, w: F.cross_entropy(x @ w, torch.arange(64, device=x.device) % 10),
        lambda: [real(*ROWS), real(129, 10)],
    ),
    "convolution": (
        lambda x, w: F.max_pool2d(F.conv2d(x, w).relu(), 2),
        lambda: [real(2, 3, 8, 8), real(4, 3, 3, 3)],
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda: [real(2, 2, 16, 8) for _ in range(3)],
    ),
    "upsampling": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), lambda: [real(2, 3, 8, 8)]),
}


@pytest.mark.parametrize("case", BACKWARD)
def test_F14_backward(case, device):
    function, make = BACKWARD[case]
    arguments = make()
    torch._dynamo.reset()
    got = gradients(torch.compile(function))(*(one.to(device) for one in arguments))
    same(got, gradients(function)(*arguments), 1e-3)


def test_F14_one_compilation_serves_all_shapes(device):
    torch._dynamo.reset()
    compilations = []

    def backend(graph, inputs):
        from torch._inductor.compile_fx import compile_fx

        compilations.append(graph)
        return compile_fx(graph, inputs)

    function = torch.compile(lambda x: (x + 1).softmax(1).sum(0), backend=backend, dynamic=True)
    for shape in ((5, 7), (33, 129), (64, 1000)):
        x = real(*shape)
        same(function(x.to(device)), (x + 1).softmax(1).sum(0), 1e-4)
    assert len(compilations) == 1


def test_F14_kernels_run_on_the_device_alone(device):
    from torch_backplane import fallback

    x = real(*ROWS).to(device)
    function = torch.compile(lambda x: (x.sin() + x.softmax(1)).sum())
    torch._dynamo.reset()
    with fallback.budget(calls=0):
        function(x)


HOST_DTYPES = {
    torch.float32: 2.5,
    torch.float64: -2.5,
    torch.float16: 0.3,
    torch.bfloat16: 0.3,
    torch.int64: -5,
    torch.int8: -5,
    torch.uint8: 200,
    torch.bool: True,
}


@pytest.mark.parametrize("dtype", HOST_DTYPES)
def test_a_number_of_the_host_is_an_argument(dtype, device):
    """A tensor of the CPU without dimensions, and what is computed of it there."""
    x, number = real(*ROWS), torch.tensor(HOST_DTYPES[dtype], dtype=dtype)

    def function(x, number):
        return x * number + 1, (x * (number + number)).sum(1)

    torch._dynamo.reset()
    found = torch.compile(function, fullgraph=True)(x.to(device), number)
    same(found, function(x, number), 1e-4)


def test_a_number_that_changes_needs_no_compilation(device):
    torch._dynamo.reset()
    x = real(*ROWS)
    function = torch.compile(lambda x, a: x * a + a + 1)
    for a in (1.5, 2.5):  # the first may be a constant
        function(x.to(device), a)
    with torch.compiler.set_stance("fail_on_recompile"):
        for a in (3.5, -4.5):
            same(function(x.to(device), a), x * a + a + 1, 1e-4)


def test_quotients_and_roots_of_sizes_are_reals(device):
    def function(x):
        return x / (x.shape[0] - 1) + x.shape[1] / x.shape[0], x * x.shape[0] ** 0.5, x + x.shape[1] / 7

    x = real(5, 7)
    same(compiled(function, device, [x], dynamic=True), function(x), 1e-5)


def test_sizes_without_bound():
    from sympy import oo
    from torch.utils._sympy.numbers import int_oo

    from torch_backplane.inductor.dtypes import sizes

    for positive, negative in ((oo, -oo), (int_oo, -int_oo)):
        assert sizes(positive) == "9223372036854775807"
        assert sizes(negative) == "(-9223372036854775807 - 1)"


def test_the_gradient_of_a_deviation_where_sizes_are_dynamic(device):
    torch._dynamo.reset()
    x, function = real(5, 7), torch.compile(lambda x: x.std(), dynamic=True)
    same(gradients(function)(x.to(device)), gradients(torch.std)(x), 1e-5)


def test_the_second_device(device):
    if torch.accelerator.device_count() < 2:
        pytest.skip("the device is alone")
    other = torch.device(device.type, 1)
    x = real(*ROWS)
    got = compiled(lambda x: (x * 2).sum(1), other, [x])
    assert got.device == other
    same(got, (x * 2).sum(1), 1e-4)


@pytest.mark.parametrize("index", [99, -65], ids=["too large", "too small"])
@pytest.mark.parametrize(
    "read",
    [lambda x, i: x[i], lambda x, i: x.index_select(0, i), lambda x, i: x.t().gather(1, i[None])],
    ids=["index", "index_select", "gather"],
)
def test_F14_a_place_out_of_range_is_an_error_and_the_device_goes_on(device, read, index):
    x = real(*ROWS).to(device)

    def read_and_wait():
        compiled(read, device, [x, torch.tensor([index])])
        torch.accelerator.synchronize()

    with pytest.raises(IndexError, match=f"index {index} is out of range for 64 elements"):
        read_and_wait()
    assert (x + 0).shape == ROWS


DIVISIONS = {
    "floor": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "chosen afterwards": lambda a, b: torch.where(b == 0, 0, a // b),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("case", DIVISIONS)
def test_F14_a_division_of_integers_by_zero_is_an_error_as_in_eager(device, case, dtype):
    a, b = torch.arange(70).to(dtype), (torch.arange(70) % 7).to(dtype)
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            DIVISIONS[case](a.to(place), b.to(place))
    torch._dynamo.reset()
    run = torch.compile(DIVISIONS[case])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(a.to(device), b.to(device)).cpu()
    same(run(a.to(device), (b + 1).to(device)), DIVISIONS[case](a, b + 1), 0)


def test_a_quotient_that_a_mask_hides_is_not_reported(device):
    """What stands where another part of the result is, is computed of zeros."""

    def function(a, b):
        return torch.cat([a // b, a]), torch.nn.functional.pad(a % b, (1, 1)), a // 3

    a, b = torch.arange(8), torch.arange(1, 9)
    same(torch.compile(function)(a.to(device), b.to(device)), function(a, b), 0)
    with config.patch(force_disable_caches=True):
        _, (code,) = run_and_get_code(torch.compile(lambda a: (a // 3, a % -5)), a.to(device))
    assert "bp_report" not in code  # of numbers that are none


@pytest.mark.long
def test_an_error_names_its_operator_after_many_kernels_that_report(device):
    x, place = real(*ROWS).to(device), torch.tensor([3], device=device)
    for i in range(70):
        torch._dynamo.reset()
        assert torch.compile(lambda x, place, i=i: x[place] + i)(x, place).shape == (1, ROWS[1])
    with pytest.raises(IndexError, match="nll_loss: index 7 is out of range for 3 elements"):
        torch.nn.functional.nll_loss(x[:1, :3], torch.tensor([7], device=device)).item()


def test_an_assertion_is_eagers(device):
    x = torch.ones(3, device=device)
    torch._dynamo.reset()
    call = torch.compile(lambda x: (torch._assert_async(x.sum() > 0, "the sum is positive"), x + 1)[1])

    def call_and_wait(x):
        y = call(x)
        torch.accelerator.synchronize()
        return y

    same(call_and_wait(x), torch.full((3,), 2.0), 0)
    with pytest.raises(RuntimeError, match="the sum is positive"):
        call_and_wait(-x)
    same(call_and_wait(x), torch.full((3,), 2.0), 0)


def test_what_a_kernel_refuses(device):
    text = """typedef struct { i64 n; i64 site_; } Generated;
BP_KERNEL(generated, 1, Generated, BP_GLOBAL f32* BP_RESTRICT out) { out[0] = (f32)bp_arg.n; }
"""
    make = _backend.C.modules.generated_kernel
    kernel = make("answer", "", text, ["math.bpc"], 4, 1, 1, 1, False, [(1, -1, 1)])
    out = torch.zeros(4, device=device)
    kernel(out, 42)
    assert out[0].item() == 42
    with pytest.raises(TypeError, match="answer takes 1 tensors and 1 numbers"):
        kernel(out)
    with pytest.raises(TypeError, match="argument 0 must be a tensor, not int"):
        kernel(3, 42)
    with pytest.raises(ValueError, match="argument 0 is on cpu"):
        kernel(torch.zeros(4), 42)
    with pytest.raises(TypeError):
        kernel(out, "42")
    with FakeTensorMode(), pytest.raises(TypeError, match="argument 0 is a FakeTensor, which has no memory of its own"):
        kernel(torch.empty(4, device=device), 42)
    wrong = make("wrong", "", text.replace("(f32)", "(f33)"), ["math.bpc"], 4, 1, 1, 1, False, [(1, -1, 1)])
    with pytest.raises(RuntimeError, match=r"The kernel wrong of .* could not be compiled"):
        wrong.prepare(0)
    with pytest.raises(ValueError, match=r"cannot use the file reduction\.bpc"):
        make("wrong", "", text, ["reduction.bpc"], 4, 1, 1, 1, False, [])
    for number in (-3, 1):
        with pytest.raises(ValueError, match=f"wrong has no number {number}"):
            make("wrong", "", text, ["math.bpc"], 4, 1, 1, 1, False, [(1, number, 1)])
    with pytest.raises(ValueError, match=f"takes {2**60} elements per item"):
        make("wrong", "", text, ["math.bpc"], 4, 1, 1, 1, False, [(1, -1, -(2**60))])


def test_the_groups_of_a_launch_are_those_of_all_parts(device):
    text = """typedef struct { i64 n; i64 site_; } Generated;
BP_KERNEL(generated, 1, Generated, BP_GLOBAL i64* BP_RESTRICT out) { if (BP_ITEM == 0) out[0] = BP_GROUPS(0); }
"""
    items = compiler.target(0).group_size
    parts = [(5, -1, 1), (7, -1, 2), (0, -2, 0), (1, 0, -4), (0, -2, 0), (0, -1, 0), (0, -2, 0), (1000 * items, -1, 0)]
    kernel = _backend.C.modules.generated_kernel("groups", "", text, ["math.bpc"], 10, 1, 1, 1, False, parts)
    out = torch.zeros(1, dtype=torch.int64, device=device)
    kernel(out, 9 * items)
    assert out.item() == 5 * 4 + 3 + 0 + 100


def test_what_the_dialect_lacks_is_a_call_of_the_operator(device):
    x = real(5, 7).abs() + 1
    functions = (
        lambda x: torch.special.bessel_j0(x) * 2,
        lambda x: torch.special.zeta(x + 1, x) + x,
        lambda x: torch.polygamma(2, x) + 1,
        lambda x: torch.special.erfcx(x) + 1,
    )
    for function in functions:
        same(compiled(function, device, [x]), function(x), 1e-4)
    y = x.double()
    same(compiled(lambda y: torch.special.i0(y) + y.digamma(), device, [y]), torch.special.i0(y) + y.digamma(), 1e-9)
    same(torch.compile(lambda x: torch.special.i0(x.double()) + 1)(x), torch.special.i0(y) + 1, 1e-9)


def test_numbers_on_the_cpu_are_arguments(device):
    """Not only constants: an optimizer's step is a tensor there, and so is a learning rate."""
    x = real(*ROWS)
    numbers = [torch.tensor(2.5, dtype=dtype) for dtype in (torch.float64, torch.float16, torch.bfloat16)]
    numbers += [torch.tensor(-3), torch.tensor(200, dtype=torch.uint8), torch.tensor(True)]
    numbers += [torch.tensor(-(2**62)), torch.tensor(2**63 + 2, dtype=torch.uint64)]

    def function(x, *numbers):
        kept = [x * number for number in numbers[:6]]
        return *kept, (x > 0) * numbers[6], (x > 0).to(torch.uint64) * numbers[7]

    torch._dynamo.reset()
    call = torch.compile(function)
    for changed in (numbers, [-numbers[0], numbers[1], numbers[2] + 1, *numbers[3:]]):
        same(call(x.to(device), *changed), function(x, *changed), 1e-6)


def test_a_kernel_has_no_more_tensors_than_a_launch_takes(device):
    def function(xs):
        return sum(xs[1:], xs[0]), sum(x * 2 for x in xs)

    xs = [real(4, 5) for _ in range(150)]
    torch._dynamo.reset()
    same(torch.compile(function)([x.to(device) for x in xs]), function(xs), 1e-4)


def test_modes_that_ask_for_graphs_run_without_and_say_so_once(device):
    from torch_backplane.inductor.runtime import without_graphs

    without_graphs.cache_clear()
    x = real(*ROWS)
    said = []
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            same(compiled(lambda x: (x + 1).softmax(1), device, [x], mode=mode), (x + 1).softmax(1), 1e-5)
        said.append([str(one.message) for one in seen if "without graphs" in str(one.message)])
    assert [len(one) for one in said] == [0, 1, 0, 0]
    assert f"run on {device.type} without graphs" in said[1][0]
    assert f"torch.{device.type}.make_graphed_callables records a module's passes" in said[1][0]


def test_importing_the_backend_does_not_import_inductor(run_in_process):
    code = f"""
    import sys, {_backend.device}
    found = {{module for module in sys.modules if module.startswith(("torch._inductor", "torch_backplane.inductor"))}}
    assert found == {{"torch_backplane.inductor", "torch_backplane.inductor.entry"}}
    """
    run_in_process(code)


def test_caches_are_of_one_compiler_and_target(device, monkeypatch):
    from torch._inductor.codegen.common import custom_backend_passes

    from torch_backplane import compiler

    compiled(lambda x: x + 1, device, [real(3)])
    key = custom_backend_passes[device.type]
    before = key.uuid()
    assert key.uuid() == before
    here = compiler.target()
    for index, change in ((0, {"compiler": "another"}), (1, {"dtypes": 0}), (1, {"atomics": 0})):
        other = replace(here, **change)
        monkeypatch.setattr(compiler, "target", lambda at=-1, index=index, other=other: other if at == index else here)
        assert key.uuid() != before


def test_caches_are_of_what_generates_code(device):
    from torch_backplane.inductor import registration

    known = {f"{file.parent.name}/{file.name}" for file in registration._files() if file.is_file()}
    of_python = {"inductor/kernel.py", "inductor/fallbacks.py", "compat/inductor.py"}
    assert of_python | {"inductor/cpp_prefix.h", "inductor/aoti_prefix.h", "backplane/generated.h"} <= known


def test_a_model_trains_as_on_the_cpu(device):
    def losses(where, compile_):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 4)
        ).to(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = real(64, 16).to(where), torch.randint(0, 4, (64,)).to(where)
        torch._dynamo.reset()
        step = torch.compile(model) if compile_ else model
        found = []
        for _ in range(8):
            optimizer.zero_grad()
            loss = F.cross_entropy(step(x), y)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(device, True) == pytest.approx(losses("cpu", False), abs=1e-3)


def test_buffers_come_from_the_backends_own_function(device):
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    x = torch.ones(8, 4, device=device)
    y, (code,) = run_and_get_code(torch.compile(lambda x: x + 1), x)
    assert f"= empty_strided_{device.type}((8, 4), (4, 1), torch.float32, 0)" in code
    assert torch.equal(y.cpu(), torch.full((8, 4), 2.0))


def test_what_the_backends_own_function_refuses(device):
    empty = _backend.C.modules.empty_strided
    made = empty((2, 3), (1, 2), torch.int16, 0)
    assert (made.shape, made.stride(), made.dtype, made.device.index) == ((2, 3), (1, 2), torch.int16, 0)
    with pytest.raises(TypeError, match=r"takes 4 argument\(s\), not 3"):
        empty((2,), (1,), torch.int16)
    with pytest.raises(TypeError, match="tuples of integers, not list"):
        empty([2], (1,), torch.int16, 0)
    with pytest.raises(TypeError):
        empty((2.5,), (1,), torch.int16, 0)
    with pytest.raises(ValueError, match="1 sizes and 2 strides"):
        empty((2,), (1, 1), torch.int16, 0)
    with pytest.raises(RuntimeError, match="negative"):
        empty((-2,), (1,), torch.int16, 0)
    with pytest.raises(RuntimeError):
        empty((2,), (1,), torch.int16, 99)
