"""Kernels of torch.compile as objects: what they and the backend's allocation accept, and the keys of caches."""

import re
from dataclasses import replace

import pytest
import torch
from torch._inductor.codegen.common import custom_backend_passes
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode

from portable.compare import real
from portable.test_compile import ROWS, compiled, same
from torch_backplane import _backend, compiler
from torch_backplane.inductor import registration

pytestmark = pytest.mark.usefixtures("each_compiles")


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


@pytest.mark.long
def test_a_kernel_has_no_more_tensors_than_a_launch_takes(device):
    def function(xs):
        return sum(xs[1:], xs[0]), sum(x * 2 for x in xs)

    xs = [real(4, 5) for _ in range(150)]
    same(torch.compile(function)([x.to(device) for x in xs]), function(xs), 1e-4)


def test_buffers_come_from_the_backends_own_function(device):
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


def test_caches_are_of_one_compiler_and_target(device, monkeypatch):
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
    known = {f"{file.parent.name}/{file.name}" for file in registration._files() if file.is_file()}
    of_python = {"inductor/kernel.py", "inductor/fallbacks.py", "compat/inductor.py"}
    assert of_python | {"inductor/cpp_prefix.h", "inductor/aoti_prefix.h", "backplane/generated.h"} <= known


def test_importing_the_backend_does_not_import_inductor(run_in_process):
    code = f"""
    import sys, {_backend.device}
    found = {{module for module in sys.modules if module.startswith(("torch._inductor", "torch_backplane.inductor"))}}
    assert found == {{f"torch_backplane.inductor{{name}}" for name in ("", ".entry", ".triton")}}
    """
    run_in_process(code)


@pytest.mark.long
def test_an_error_names_its_operator_after_many_kernels_that_report(device):
    x, place = real(*ROWS).to(device), torch.tensor([3], device=device)
    for i in range(70):
        torch._dynamo.reset()
        assert torch.compile(lambda x, place, i=i: x[place] + i)(x, place).shape == (1, ROWS[1])
    with pytest.raises(IndexError, match="nll_loss: index 7 is out of range for 3 elements"):
        torch.nn.functional.nll_loss(x[:1, :3], torch.tensor([7], device=device)).item()


@pytest.mark.parametrize(("kib", "turned"), [(64, 0), (128, 1), (1024, 2)])
def test_blocks_are_transposed_in_registers_as_far_as_local_memory_has_room(device, monkeypatch, kib, turned):
    x, y = torch.randn(128, 100), torch.randn(100, 128)
    monkeypatch.setattr(
        compiler, "target", lambda number=-1, of=compiler.target: replace(of(number), local_bytes=kib << 10)
    )
    torch._dynamo.reset()

    with torch._inductor.config.patch(force_disable_caches=True):
        got, codes = run_and_get_code(
            torch.compile(lambda a, b, y: y * a.t() + b.t()), *(one.to(device) for one in (x, x + 1, y))
        )
    assert torch.allclose(got.cpu(), y * x.t() + (x + 1).t())
    assert codes[0].count("BP_TRANSPOSE(") == (turned if compiler.target(0).group_size == 1 else 0)


@pytest.mark.parametrize("to_channels_last", [False, True])
def test_a_core_writes_along_its_lanes(device, to_channels_last):
    """What it reads across them is transposed. Channels that a tile divides are neighbours in the text of a place."""
    x = torch.randn(2, 64, 12, 16) if to_channels_last else torch.randn(128, 100)

    def call(x):
        if to_channels_last:
            return (x + 1).contiguous(memory_format=torch.channels_last)
        return x.t() + x.view(100, 128)  # with the strides of x.t()

    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        got, codes = run_and_get_code(torch.compile(call), x.to(device))
    assert torch.equal(got.cpu(), call(x))
    assert got.stride() == call(x).stride()
    if compiler.target(0).group_size == 1:
        assert codes[0].count("BP_TRANSPOSE(") == 1
        (axis,) = set(re.findall(r"bp_store_f32\(out_ptr0, ([xy])\d \+ ", codes[0]))  # where the step is 1
        assert f"{axis}index = (i64)(first_ + BP_AT(j));" in codes[0]
        assert ("(first_ % 64) + BP_AT(j);" in codes[0]) == to_channels_last


def test_lanes_lie_along_the_axis_of_whole_operands(device):
    """Numbers of a row do not count: there are four of them, and two operands with an element in each place."""
    x, *rows = torch.randn(60, 300), *(torch.rand(60) for _ in range(4))
    torch._dynamo.reset()

    def scaled(x, mean, scale, weight, bias):
        return (x - mean[:, None]) * scale[:, None] * weight[:, None] + bias[:, None]

    with torch._inductor.config.patch(force_disable_caches=True):
        got, codes = run_and_get_code(torch.compile(scaled), *(one.to(device) for one in (x, *rows)))
    torch.testing.assert_close(got.cpu(), scaled(x, *rows))
    assert "BP_TRANSPOSE(" not in codes[0]
    assert re.search(r"const i(32|64) xindex = \(i\d\d\)\(first_ \+ BP_AT\(j\)\);", codes[0]), codes[0]


@pytest.mark.parametrize("forced", [False, True])
def test_a_graph_of_convolutions_keeps_its_layouts_unless_that_is_asked_for(device, forced):
    x, weights = torch.randn(1, 64, 16, 16), [torch.randn(128, 64, 3, 3), torch.randn(128, 128, 3, 3)]
    torch._dynamo.reset()

    def twice(x, *weights):
        for one in weights:
            x = torch.nn.functional.conv2d(x, one, padding=1).relu()
        return x

    with torch._inductor.config.patch(force_disable_caches=True, force_layout_optimization=forced), torch.no_grad():
        got, codes = run_and_get_code(torch.compile(twice), *(one.to(device) for one in (x, *weights)))
    torch.testing.assert_close(got.cpu(), twice(x, *weights), rtol=1e-3, atol=1e-2)
    converted = re.search(r"convolution\S*\(\w+, (buf|arg)", codes[0]).group(1) == "buf"
    assert converted == forced, codes[0]
