"""Users' kernels in ``torch.compile``: how they are called, C++ around them, and packages."""

import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from torch._inductor import config
from torch._inductor.exc import InductorError
from torch._inductor.utils import run_and_get_code
from torch.library import triton_op, wrap_triton
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = "mydevice"
MODULE = torch.mydevice


@pytest.fixture(autouse=True)
def each_compiles():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with config.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


@triton.jit
def scaled_add(x, y, out, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + scale * tl.load(y + at, mask=mask), mask=mask)


tuned_add = triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (64, 256)], key=["n"])(scaled_add)
chosen_add = triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["n"])})(scaled_add)


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}) for block in (64, 128)],
    key=["n"],
    reset_to_zero=["total"],
    restore_value=["x"],
)
@triton.jit
def count_up(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(total, tl.sum(value, 0))
    tl.store(x + at, value + 1, mask=at < n)


@triton.jit
def optional_add(x, y, out, n, negate, BLOCK: tl.constexpr, HAS_Y: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if HAS_Y:
        value += tl.load(y + at, mask=at < n)
    if negate:
        value = -value
    tl.store(out + at, value, mask=at < n)


@triton.jit
def row_sums(x, out, rows, columns, row_stride, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * row_stride + at, mask=at < columns, other=0), 0))


@triton.jit
def transpose(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(out, [columns, rows], [rows, 1], [COLUMNS, ROWS])
    r, c = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    target.store([c, r], tl.trans(source.load([r, c])))


@triton.jit
def double_described(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    out.store([r, c], x.load([r, c]) * 2)


@triton.jit
def talk(x, out, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_print("value", value)
    tl.store(out + tl.arange(0, BLOCK), value)


@triton.jit
def checked(x, out, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_assert(value < 3, "values are below 3")
    tl.store(out + tl.arange(0, BLOCK), value)


@triton.jit
def assembly(x, out, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [value], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + tl.arange(0, BLOCK), value)


def call(kernel, x, y, scale=2.5):
    out = torch.empty_like(x)
    n = x.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, scale)
    return out


def direct(x, y, scale=2.5):
    out = torch.empty_like(x)
    scaled_add[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), scale, BLOCK=128)
    return out


WAYS = {
    "direct": direct,
    "autotuned": lambda x, y: call(tuned_add, x, y),
    "heuristic": lambda x, y: call(chosen_add, x, y),
}


@triton_op("triton_kernels::scaled_add", mutates_args=())
def scaled_add_op(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(scaled_add)[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), scale, BLOCK=128)
    return out


scaled_add_op.register_autograd(
    lambda ctx, grad: (grad, scaled_add_op(torch.zeros_like(grad), grad, ctx.scale), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "scale", inputs[2]),
)


class Op(torch.nn.Module):
    def forward(self, x, y):
        return scaled_add_op(x.sin(), y, 2.5).cos() + 1


class Calls(torch.nn.Module):
    """One kernel of one configuration, another of two, with work of Inductor between them."""

    def forward(self, x, y):
        first = direct(x.sin(), y)
        return first.cos() + 1, call(tuned_add, first[8:], y[8:], 0.5)


def tensors(n=1000, count=2):
    torch.manual_seed(0)
    return [torch.randn(n) for _ in range(count)]


def on_device(arguments):
    return [one.to(DEVICE) if isinstance(one, torch.Tensor) else one for one in arguments]


def wanted_of_calls(x, y):
    first = x.sin() + 2.5 * y
    return first.cos() + 1, first[8:] + 0.5 * y[8:]


@pytest.mark.parametrize("way", WAYS)
def test_T14_a_kernel_is_a_node_of_the_graph(way):
    x, y = tensors()
    compiled = torch.compile(lambda x, y: WAYS[way](x.sin(), y).cos() + 1, fullgraph=True)
    got, (code, *_) = run_and_get_code(compiled, *on_device((x, y)))
    torch.testing.assert_close(got.cpu(), (x.sin() + 2.5 * y).cos() + 1)
    assert "async_compile.triton(" in code
    assert "generated_kernel(" in code


@pytest.mark.parametrize("dynamic", [False, True])
def test_T14_an_operator_of_triton_kernels_has_gradients(dynamic):
    compiled = torch.compile(Op(), fullgraph=True, dynamic=dynamic)
    for n in (1000, 77):
        x, y = (one.requires_grad_() for one in tensors(n))
        a, b = (one.detach().to(DEVICE).requires_grad_() for one in (x, y))
        got = compiled(a, b)
        got.sum().backward()
        wanted = (x.sin() + 2.5 * y).cos() + 1
        wanted.sum().backward()
        for one, other in ((got, wanted), (a.grad, x.grad), (b.grad, y.grad)):
            torch.testing.assert_close(one.cpu(), other)


def test_T14_other_shapes_do_not_compile_again():
    compiled = torch.compile(lambda x, y: direct(x, y) + 1, fullgraph=True, dynamic=True)
    for n in (1000, 33, 4097):
        x, y = tensors(n)
        torch.testing.assert_close(compiled(*on_device((x, y))).cpu(), x + 2.5 * y + 1)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_T14_an_autotuned_kernel_leaves_what_it_restores():
    x = torch.arange(1000.0)
    total = torch.zeros(1)

    def f(x, total):
        count_up[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, total, 1000)
        return x * 2, total + 1

    a, b = on_device((x, total))
    doubled, more = torch.compile(f, fullgraph=True)(a, b)
    assert torch.equal(a.cpu(), x + 1)
    assert torch.equal(doubled.cpu(), 2 * (x + 1))
    assert (b.item(), more.item()) == (x.sum().item(), x.sum().item() + 1)


@pytest.mark.parametrize("has_y", [False, True])
@pytest.mark.parametrize("negate", [False, True])
def test_T14_absent_tensors_and_flags(has_y, negate):
    x, y = tensors(100)

    def f(x, y, negate):
        out = torch.empty_like(x)
        optional_add[(1,)](x, y, out, 100, negate, BLOCK=128, HAS_Y=y is not None)
        return out

    got = torch.compile(f, fullgraph=True)(*on_device((x, y if has_y else None, negate)))
    torch.testing.assert_close(got.cpu(), (x + y if has_y else x) * (-1 if negate else 1))


def test_T14_views_and_strides():
    x = torch.randn(9, 100)

    def f(x):
        part = (x + 1)[1:, 10:60]
        out = torch.empty(8, device=x.device)
        row_sums[(8,)](part, out, 8, 50, part.stride(0), BLOCK=64)
        return out

    torch.testing.assert_close(torch.compile(f, fullgraph=True)(x.to(DEVICE)).cpu(), (x + 1)[1:, 10:60].sum(1))


def test_T14_a_kernel_writes_its_argument_in_place():
    x, y = tensors()

    def f(x, y):
        before = x * 2
        scaled_add[(8,)](x, y, x, 1000, 1.0, BLOCK=128)
        return before, x * 2

    a, b = on_device((x, y))
    before, after = torch.compile(f, fullgraph=True)(a, b)
    for got, wanted in ((before, x * 2), (after, (x + y) * 2), (a, x + y)):
        torch.testing.assert_close(got.cpu(), wanted)


def test_T14_tensor_descriptors():
    x = torch.randn(48, 32)

    def made_by_the_kernel(x):
        out = torch.empty(32, 48, device=x.device)
        transpose[(3, 1)](x + 1, out, 48, 32, ROWS=16, COLUMNS=32)
        return out * 2

    def made_by_the_host(x):
        out = torch.empty_like(x)
        x = x + 1
        blocks = [TensorDescriptor.from_tensor(one, [16, 32]) for one in (x, out)]
        double_described[(3, 1)](*blocks, ROWS=16, COLUMNS=32)
        return out - 1

    for f, wanted in ((made_by_the_kernel, (x + 1).T * 2), (made_by_the_host, (x + 1) * 2 - 1)):
        torch.testing.assert_close(torch.compile(f)(x.to(DEVICE)).cpu(), wanted)


def test_T14_a_kernel_in_a_branch_and_in_a_checkpoint():
    x, y = tensors()

    def branch(x, y):
        return torch.cond(
            x.sum() > 0, lambda x, y: scaled_add_op(x, y, 1.0), lambda x, y: scaled_add_op(x, y, -1.0), (x, y)
        )

    for sign in (1, -1):
        positive = sign * x.abs()
        got = torch.compile(branch, fullgraph=True)(*on_device((positive, y)))
        torch.testing.assert_close(got.cpu(), positive + sign * y)

    def recomputed(x, y):
        return torch.utils.checkpoint.checkpoint(lambda x, y: scaled_add_op(x, y, 2.0).sin(), x, y, use_reentrant=False)

    a, b = (one.to(DEVICE).requires_grad_() for one in (x, y))
    torch.compile(recomputed, fullgraph=True)(a, b).sum().backward()
    torch.testing.assert_close(b.grad.cpu(), 2 * (x + 2 * y).cos())


def test_T14_what_cannot_be_lowered_names_the_users_line():
    def f(x):
        out = torch.empty_like(x)
        assembly[(1,)](x, out, BLOCK=16)
        return out

    with pytest.raises(
        Exception, match=r"(?s)inline assembly is one chip.s.*\n    value = tl.inline_asm_elementwise\("
    ):
        torch.compile(f, fullgraph=True)(torch.zeros(16, dtype=torch.int32, device=DEVICE))


def test_T14_messages_of_a_compiled_kernel(capsys):
    def f(kernel, x):
        out = torch.empty_like(x)
        kernel[(1,)](x, out, BLOCK=2)
        return out + 1

    x = torch.tensor([1, 2], device=DEVICE)
    assert torch.compile(lambda x: f(talk, x))(x).tolist() == [2, 3]
    assert sorted(capsys.readouterr().out.splitlines()) == [f"pid (0, 0, 0) idx ({i}) value: {i + 1}" for i in range(2)]
    with pytest.raises(AssertionError, match="values are below 3"):
        torch.compile(lambda x: f(checked, x))(x + 2)


def test_T14_kernels_are_compiled_by_processes_that_do_not_load_the_backend_with_torch(tmp_path):
    (tmp_path / "program.py").write_text(
        """
import torch, mydevice, triton, triton.language as tl
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile

@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)) * 2)

def f(x):
    out = torch.empty_like(x)
    double[(1,)](x, out, BLOCK=64)
    return out

AsyncCompile.wait_pool_ready()
with config.patch(force_disable_caches=True):
    assert AsyncCompile.use_process_pool()
    print(torch.compile(f)(torch.ones(64, device="mydevice")).sum().item())
"""
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        env={
            **os.environ,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "TRITON_CACHE_DIR": str(tmp_path),
            "TORCHINDUCTOR_COMPILE_THREADS": "2",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "128.0"


@pytest.mark.skipif(MODULE.device_count() < 2, reason="one device")
def test_T14_a_graph_of_the_second_device():
    x, y = tensors()
    got = torch.compile(direct, fullgraph=True)(x.to(f"{DEVICE}:1"), y.to(f"{DEVICE}:1"))
    assert got.device.index == 1
    torch.testing.assert_close(got.cpu(), x + 2.5 * y)


def test_T15_cpp_around_kernels():
    x, y = tensors()
    with config.patch(cpp_wrapper=True):
        got, (code, *_) = run_and_get_code(torch.compile(Calls(), fullgraph=True), *on_device((x, y)))
    assert "call_scaled_add_0(" in code
    for one, other in zip(got, wanted_of_calls(x, y), strict=True):
        torch.testing.assert_close(one.cpu(), other)


def test_T15_what_cpp_refuses():
    def f(kernel, x):
        out = torch.empty_like(x)
        kernel[(1,)](x, out, BLOCK=2)
        return out + 1

    x = torch.tensor([1, 2], device=DEVICE)
    with config.patch(cpp_wrapper=True):
        for kernel in (talk, checked):
            with pytest.raises(InductorError, match="C\\+\\+ cannot read what a Triton kernel prints or asserts"):
                torch.compile(lambda x, kernel=kernel: f(kernel, x))(x)
        with config.patch(assert_indirect_indexing=False):
            assert torch.compile(lambda x: f(checked, x))(x).tolist() == [2, 3]
    program = torch.export.export(Op(), tuple(on_device(tensors())), strict=True)
    with pytest.raises(InductorError, match="autotune_at_compile_time"):
        torch._inductor.aoti_compile_and_package(program, inductor_configs={"triton.autotune_at_compile_time": False})


@pytest.mark.parametrize("model", [Calls, Op])
def test_T15_a_package_runs_without_triton(model, tmp_path):
    size = torch.export.Dim("n", min=16, max=4096)
    program = torch.export.export(
        model(), tuple(on_device(tensors())), dynamic_shapes=({0: size}, {0: size}), strict=True
    )
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "calls.pt2"))
    for n in (1000, 3333):
        torch.save(tensors(n), tmp_path / f"{n}.pt")
    code = f"""
import sys, torch, mydevice
sys.modules["triton"] = None
run = torch._inductor.aoti_load_package({str(path)!r})
for n in (1000, 3333):
    given = torch.load("{tmp_path}/%d.pt" % n)
    got = run(*(one.to("mydevice") for one in given))
    torch.save([one.cpu() for one in (got if isinstance(got, (list, tuple)) else [got])], "{tmp_path}/%d.out" % n)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    for n in (1000, 3333):
        x, y = tensors(n)
        wanted = wanted_of_calls(x, y) if model is Calls else [(x.sin() + 2.5 * y).cos() + 1]
        for one, other in zip(torch.load(tmp_path / f"{n}.out"), wanted, strict=True):
            torch.testing.assert_close(one, other)
