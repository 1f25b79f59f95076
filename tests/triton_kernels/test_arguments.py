"""What a kernel is launched with: tensors of every kind, numbers, names, devices; and what is refused."""

import os
import threading

import numpy
import programs
import pytest
import torch
import triton
import triton.language as tl

DEVICE = "mydevice"
MODULE = torch.mydevice


@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def fill(out, value, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), value)


@triton.jit
def transpose(x, out, x0, x1, out0, out1, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(out + i * out0 + j * out1, tl.load(x + i * x0 + j * x1))


@triton.jit
def add_bias(x, bias, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    if bias is not None:
        value += tl.load(bias + at)
    tl.store(out + at, value)


DTYPES = """bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 float8_e4m3fn
float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz""".split()


@pytest.mark.parametrize("name", DTYPES)
def test_T07_tensors_of_every_dtype(name):
    dtype = getattr(torch, name)
    x = (torch.arange(64) % 3).to(dtype)
    out = torch.zeros(64).to(dtype).to(DEVICE)
    copy[(1,)](x.to(DEVICE), out, 64, BLOCK=64)
    assert torch.equal(out.cpu().view(torch.uint8), x.view(torch.uint8))


def test_T07_views_numbers_without_dimensions_and_nothing():
    x = torch.randn(16, 8, device=DEVICE)
    out = torch.zeros(8, 16, device=DEVICE)
    transpose[(1,)](x.t(), out, *x.t().stride(), *out.stride(), 8, 16)
    assert torch.equal(out.cpu(), x.cpu().t())
    column = torch.zeros(8, 16, device=DEVICE)[:, 3:7]
    transpose[(1,)](x[2:10, ::2], column, *x[:, ::2].stride(), *column.stride(), 8, 4)
    assert torch.equal(column.cpu(), x.cpu()[2:10, ::2])
    number = torch.zeros(4, device=DEVICE)
    copy[(1,)](torch.tensor(3.5, device=DEVICE), number, 1, BLOCK=4)
    assert number.tolist() == [3.5, 0, 0, 0]
    empty = torch.empty(0, device=DEVICE)
    copy[(1,)](empty, empty, 0, BLOCK=4)


@pytest.mark.parametrize("value", [True, -1, 2**40, 2**63, 2**64 - 1, 2.5, float("inf"), numpy.float64(2.5)], ids=repr)
def test_T07_numbers(value):
    out = torch.zeros(4, dtype=torch.float64, device=DEVICE)
    fill[(1,)](out, value, BLOCK=4)
    assert out.tolist() == [float(value)] * 4


def test_T07_numbers_of_64_bits_keep_their_bits():
    out = torch.zeros(4, dtype=torch.uint64).to(DEVICE)
    fill[(1,)](out, 2**64 - 1, BLOCK=4)
    assert out.cpu().tolist() == [2**64 - 1] * 4


def test_T07_names_defaults_and_none():
    x, out = torch.ones(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    add_bias[(1,)](out=out, BLOCK=4, bias=None, x=x)
    assert out.tolist() == [1] * 4
    add_bias[(1,)](x, x, out=out, BLOCK=4)
    assert out.tolist() == [2] * 4
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'bias'"):
        add_bias[(1,)](x, out=out, BLOCK=4)
    with pytest.raises(KeyError, match="num_wraps"):
        add_bias[(1,)](x, None, out, BLOCK=4, num_wraps=2)


def test_T07_parameters_and_subclasses_that_have_memory():
    class Marked(torch.Tensor):
        pass

    out = torch.zeros(4, device=DEVICE)
    for x in (
        torch.nn.Parameter(torch.ones(4, device=DEVICE)),
        torch.full((4,), 2.0, device=DEVICE).as_subclass(Marked),
    ):
        copy[(1,)](x, out, 4, BLOCK=4)
        assert torch.equal(out.cpu(), x.detach().cpu().as_subclass(torch.Tensor))


def test_T07_tensors_without_memory_of_their_own_are_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, out = torch.ones(2, 4, device=DEVICE), torch.zeros(4, device=DEVICE)

    def launch(x):
        copy[(1,)](x, out, 4, BLOCK=4)
        return x

    with FakeTensorMode():
        fake = torch.ones(4, device=DEVICE)
    with pytest.raises(TypeError, match=r"copy: an argument is a FakeTensor.*torch.library.triton_op"):
        launch(fake)
    with pytest.raises(TypeError, match=r"copy: an argument is a Tensor of a mode or a transform.*Functionalize"):
        launch(torch._to_functional_tensor(x))
    for call in (
        lambda: torch.vmap(launch)(x),
        lambda: torch.func.grad(lambda x: launch(x).sum())(x[0]),
        lambda: launch(x.to_sparse()),
    ):
        with pytest.raises(RuntimeError, match="doesn't have storage"):  # Triton's own, when it reads the address
            call()
    assert out.tolist() == [0] * 4


def test_T07_views_that_negate_when_they_are_read_are_refused():
    x = torch.tensor([1 + 2j] * 4, device=DEVICE).conj()
    out = torch.zeros(8, device=DEVICE)
    assert x.imag.is_neg()
    with pytest.raises(ValueError, match=r"negates or conjugates .*pass tensor.resolve_neg\(\)"):
        copy[(1,)](x.imag, out, 4, BLOCK=4)
    copy[(1,)](x.imag.resolve_neg(), out, 4, BLOCK=4)
    assert out.tolist() == [-2] * 4 + [0] * 4


@pytest.mark.parametrize("kind", ["cpu", "pinned", "meta"])
def test_T07_memory_that_the_device_cannot_reach_is_refused(kind):
    x = torch.ones(4).pin_memory() if kind == "pinned" else torch.ones(4, device=kind)
    with pytest.raises(ValueError, match=r"cannot be accessed from Triton: a tensor of copy.*move it with tensor.to\("):
        copy[(1,)](x, torch.zeros(4, device=DEVICE), 4, BLOCK=4)


def test_T07_grids():
    out = torch.zeros(4, device=DEVICE)
    for grid in ((1,), [1], (1, 1, 1), (numpy.int64(1),), lambda meta: (meta["BLOCK"] // 4,)):
        out.zero_()
        fill[grid](out, 1.0, BLOCK=4)
        assert out.tolist() == [1] * 4
    for grid in ((-1,), (1, 2**31)):
        with pytest.raises(
            ValueError, match=r"fill: the grid has -?\d+ programs along axis \d; from 0 to 2147483647 are"
        ):
            fill[grid](out, 1.0, BLOCK=4)
    with pytest.raises(TypeError, match="float"):
        fill[(1.5,)](out, 1.0, BLOCK=4)


def test_T08_tensors_decide_the_device(tmp_path):
    text = """
x, out = (tensor.to("mydevice:1") for tensor in tensors())
double_rows[(1,)](x, out, 64, BLOCK=64)
print(module.current_device(), out.device, out.sum().item())


@triton.jit
def talk(x):
    tl.device_print("value", tl.load(x))


talk[(1,)](x[3:])
attempt(lambda: double_rows[(1,)](x, tensors()[1], 64, BLOCK=64))
attempt(lambda: torch.empty(1, device="mydevice:2"))
double_rows[(1,)](*tensors(), 64, BLOCK=64)
"""
    lines = programs.run(tmp_path, text, MYDEVICE_OPTIONS="devices=2").splitlines()
    assert lines[:2] == ["0 mydevice:1 4032.0", "pid (0, 0, 0) idx () value: 3.000000"]
    assert lines[2] == "ValueError double_rows: tensors are on mydevice:1 and on mydevice:0"
    assert "invalid device index" in lines[3] or "2" in lines[3]


def test_T08_threads_launch_on_their_own_streams():
    results, start = {}, threading.Barrier(4)

    def work(number):
        out, stream = torch.empty(64, device=DEVICE), MODULE.Stream()
        start.wait()
        with MODULE.stream(stream):
            for value in range(50):
                fill[(1,)](out, float(number + value), BLOCK=64)
            results[number] = out.sum().item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: 64.0 * (number + 49) for number in range(4)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_T08_a_forked_child_is_refused_and_a_spawned_one_launches(tmp_path):
    text = """
import multiprocessing


def work():
    x, out = tensors()
    double_rows[(1,)](x, out, 64, BLOCK=64)
    print("spawned", out.sum().item(), flush=True)


if __name__ == "__main__":
    x, out = tensors()
    double_rows[(1,)](x, out, 64, BLOCK=64)
    if os.fork() == 0:
        attempt(lambda: double_rows[(1,)](x, out, 64, BLOCK=64))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    double_rows[(1,)](out, out, 64, BLOCK=64)
    print("parent", out.sum().item())
"""
    forked, spawned, parent = programs.run(tmp_path, text).splitlines()
    assert forked.startswith("RuntimeError Cannot re-initialize mydevice in forked subprocess")
    assert (spawned, parent) == ("spawned 4032.0", "parent 8064.0")
