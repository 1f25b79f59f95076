"""Operators that the CPU does not support in a half type are computed in float32, rounded once, and counted."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
from device_memory import limited
from portable.compare import same_error

from torch_backplane import fallback

F = torch.nn.functional
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def counted():
    fallback.reset_calls()


def numbers(*shape, dtype=torch.float16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def same(a, b):
    """Equal bits' values; torch.equal has no complex32."""
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    a, b = (torch.view_as_real(x.resolve_conj().resolve_neg()) if x.is_complex() else x for x in (a.cpu(), b.cpu()))
    return torch.equal(a, b)


def wide(x):
    return x.to(torch.complex64 if x.is_complex() else torch.float32)


CALLS = {
    "avg_pool3d": lambda x: F.avg_pool3d(x.unsqueeze(0), 2),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x[0, :, 0], torch.tensor([0, 1, 2, 3], device=x.device)),
    "resize": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
}


@pytest.mark.parametrize("function", CALLS.values(), ids=CALLS.keys())
def test_K01_a_half_type_that_the_cpu_does_not_support_is_computed_in_float32_and_rounded_once(device, function):
    for dtype in HALVES:
        x = numbers(2, 4, 6, 6, dtype=dtype)
        expected = function(wide(x)).to(dtype)
        result = function(x.to(device))
        assert result.dtype is dtype
        assert torch.equal(result.cpu(), expected)


def test_K01_complex_halves(device):
    x = torch.complex(numbers(5), numbers(5, seed=1))
    for function in (torch.sin, torch.sigmoid, torch.angle, torch.sum, lambda x: x**2, lambda x: x / x.roll(1)):
        expected = function(wide(x))
        result = function(x.to(device))
        assert result.dtype is (torch.complex32 if expected.is_complex() else torch.float16)
        torch.testing.assert_close(result.cpu(), expected.to(result.dtype), rtol=2e-3, atol=2e-3)


def test_K01_outs_and_tensors_that_are_changed(device):
    x = torch.complex(numbers(2, 3), numbers(2, 3, seed=1))
    on_device = x.to(device)
    expected = wide(x).sin().to(x.dtype)
    for out in (torch.empty_like(on_device), on_device.new_empty(0), on_device.new_empty(3, 2).T):
        result = torch.sin(on_device, out=out)
        assert result is out
        assert same(out, expected)
    assert same(on_device, x)
    view = on_device[:, 1:]
    assert view.sin_() is view
    assert same(on_device, torch.cat([x[:, :1], expected[:, 1:]], 1))


def test_K01_gradients_are_of_the_half_type(device):
    x = numbers(1, 2, 4, 4, 4)
    at, reference = x.to(device).requires_grad_(), wide(x).requires_grad_()
    F.avg_pool3d(at, 2).sum().backward()
    F.avg_pool3d(reference, 2).sum().backward()
    assert at.grad.dtype is torch.float16
    assert torch.equal(at.grad.cpu(), reference.grad.half())


def test_K01_random_numbers_are_drawn_once(device, device_module):
    """A call that is repeated in float32 draws no more numbers from the generator than one that is not."""
    x = numbers(1000).to(device)

    def draw(x):
        device_module.manual_seed(7)
        result = F.rrelu(x, training=True)
        return result, device_module.default_generators[0].get_offset()

    (first, place), (second, place_2) = draw(x), draw(x)  # the first may call the CPU's kernel, the second does not
    reference, place_3 = draw(x.float())
    assert torch.equal(first, second)
    assert torch.equal(first, reference.half())
    assert place == place_2 == place_3


def test_K01_it_is_counted_by_itself_and_can_be_switched_off(device):
    x = numbers(1, 1, 2, 2, 2).to(device)
    F.avg_pool3d(x, 2)
    F.avg_pool3d(x, 2)
    F.avg_pool3d(x.float(), 2)
    assert fallback.widened() in ({"aten::avg_pool3d.out": 2}, {"aten::avg_pool3d": 2})
    (op,) = fallback.widened()
    assert fallback.calls()[op] >= 2
    (count,) = [count for count in fallback.report().counts if count.op == op]
    assert count.widened == 2
    assert '"widened": 2' in fallback.report().to_json()
    assert "widened" in str(fallback.report())
    with fallback.widening(False), pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        F.avg_pool3d(x, 2)
    assert fallback.widened() == {op: 2}
    with fallback.widening(False), pytest.raises(RuntimeError, match="Unsupported dtype Half"):
        torch.fft.fft(numbers(4).to(device))


@pytest.mark.fresh
def test_K01_the_environment_switches_it_off(printed):
    code = """
        from torch_backplane import fallback
        assert not fallback._backend.C.fallback.widening()
        try:
            torch.nn.functional.avg_pool3d(torch.ones(1, 1, 2, 2, 2, dtype=torch.half, device=d), 2)
        except NotImplementedError as error:
            print("not implemented for 'Half'" in str(error))
    """
    assert printed(code, WIDEN="0") == "True\n"


TRANSFORMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
TRANSFORMS += tuple(f"{name}{n}" for name in TRANSFORMS for n in ("2", "n"))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_K02_fourier_transforms_of_halves(device, name):
    transform = getattr(torch.fft, name)
    real = numbers(4, 6)
    takes_reals = name.startswith(("rfft", "ihfft"))
    for x in (real,) if takes_reals else (real, torch.complex(real, numbers(4, 6, seed=1))):
        expected = transform(wide(x))
        dtype = torch.complex32 if expected.is_complex() else torch.float16
        at = x.to(device)
        result = transform(at)
        assert result.dtype is dtype
        assert same(result, expected.to(dtype))
        out = torch.empty(0, dtype=dtype, device=device)
        assert transform(at, out=out) is out
        assert same(out, expected.to(dtype))
    assert fallback.widened()[f"aten::fft_{name}"] > 0


def test_K02_transforms_of_lazy_conjugates_and_negatives(device):
    x = torch.complex(numbers(8), numbers(8, seed=1))
    at = x.to(device)
    expected = torch.fft.fft(wide(x).conj()).to(x.dtype)
    assert at.conj().is_conj()
    assert same(torch.fft.fft(at.conj()), expected)
    assert same(torch.fft.fft(torch._neg_view(at)), torch.fft.fft(-wide(x)).to(x.dtype))
    assert same(at, x)


@pytest.mark.parametrize("length", [16, 12])
def test_K02_transforms_of_windows(device, length):
    """torch.stft and istft call the kernels, which refuse halves with another message."""
    x, window = numbers(64), torch.hann_window(length).half()

    def spectra(x, window):
        return torch.stft(x, length, window=window, return_complex=True)

    found = spectra(x.to(device), window.to(device))
    assert found.dtype is torch.complex32
    expected = spectra(wide(x), wide(window))
    torch.testing.assert_close(found.cpu().to(torch.complex64), expected, rtol=4e-3, atol=4e-3)
    assert fallback.widened()["aten::_fft_r2c"] == 1
    back = torch.istft(found, length, window=window.to(device), length=64)
    assert back.dtype is torch.float16
    torch.testing.assert_close(back.cpu(), x, rtol=4e-3, atol=4e-3)


def test_K02_gradients_of_a_transform(device):
    x = numbers(8)
    at, reference = x.to(device).requires_grad_(), wide(x).requires_grad_()
    torch.view_as_real(torch.fft.rfft(at)).pow(2).sum().backward()
    torch.view_as_real(torch.fft.rfft(reference)).pow(2).sum().backward()
    assert at.grad.dtype is torch.float16
    torch.testing.assert_close(at.grad.cpu(), reference.grad.half(), rtol=4e-3, atol=4e-3)


def test_K03_other_errors_come_through(device):
    """Wrong shapes and dtypes raise as on the CPU, also if it is known that the operator does not support the dtype."""
    good = numbers(1, 1, 2, 2, 2)
    F.avg_pool3d(good.to(device), 2)
    same_error(device, lambda x: F.avg_pool3d(x.float() if x.is_cpu else x, 5), good)
    targets = torch.zeros(4, dtype=torch.int64, device=device)
    F.multi_margin_loss(numbers(4, 6).to(device), targets)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        F.multi_margin_loss(numbers(4, 6).long().to(device), targets)
    with pytest.raises(RuntimeError, match=r"(?i)dtype|scalar type"):
        F.multi_margin_loss(numbers(4, 6).to(device), torch.zeros(4, device=device))


def test_K03_a_lazy_clone_that_is_read_stays_lazy_and_one_that_is_written_does_not(device):
    x = torch.complex(numbers(4), numbers(4, seed=1)).to(device)
    clone = torch._lazy_clone(x)
    torch.sin(clone)
    assert torch._C._is_cow_tensor(clone)
    clone.sin_()
    assert not torch._C._is_cow_tensor(clone)
    assert same(x.sin(), clone)


@pytest.mark.requires("graph")
def test_K03_in_a_graph_it_is_refused_like_every_call_of_the_cpu(device, device_module):
    """A copy is work of the device on every driver; one without kernels would refuse an addition first."""
    x = numbers(1, 1, 2, 2, 2).to(device)
    y = torch.zeros_like(x)
    F.avg_pool3d(x, 2)
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        x.copy_(y)
        with pytest.raises(RuntimeError, match=r"avg_pool3d.*runs on the CPU, cannot be recorded"):
            F.avg_pool3d(x, 2)


def test_K03_memory_that_runs_out_is_an_error_and_changes_nothing(device, device_module):
    device_module.empty_cache()  # x in a cached segment of twice its size would leave room for the result
    x = torch.complex(numbers(1 << 22), numbers(1 << 22, seed=1)).to(device)
    torch.sin(x[:4])
    before = x.cpu()
    device_module.empty_cache()
    with limited(device_module, device_module.memory_allocated() + 4096):
        for call in (torch.fft.fft, torch.sin):
            with pytest.raises(torch.OutOfMemoryError):
                call(x)
    assert same(x, before)
    assert same(torch.sin(x), wide(before).sin().to(before.dtype))


@pytest.fixture(scope="session")
def half_ops(tmp_path_factory):
    from torch.utils.cpp_extension import include_paths, library_paths  # takes a second

    library = tmp_path_factory.mktemp("half_ops") / "libhalf_ops.so"
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O0", "-w", "-shared", "-fPIC"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-I{path}" for path in include_paths()] + [f"-L{path}" for path in library_paths()]
    source = Path(__file__).parents[1] / "cpp" / "half_ops.cpp"
    subprocess.run([*command, str(source), "-o", str(library), "-ltorch_cpu", "-lc10"], check=True)
    torch.ops.load_library(str(library))
    return torch.ops.bphalf


@pytest.mark.long
def test_K03_operators_of_another_library(device, device_module, half_ops):
    for dtype in HALVES:
        x, scores = numbers(20, dtype=dtype), numbers(20, dtype=dtype, seed=1)
        at = x.to(device)
        for _ in range(2):
            places = half_ops.positive(at, scores.to(device))
            assert places.dtype is torch.int64
            assert torch.equal(places.cpu(), half_ops.positive(x.float(), scores.float()))
        with pytest.raises(RuntimeError, match="should have the same type"):  # its own check comes first
            half_ops.positive(at, scores.float().to(device))
        for result, source in zip(half_ops.halves([at, at[:3]]), (x, x[:3]), strict=True):
            assert torch.equal(result.cpu(), source / 2)
        third = torch.full((20,), 1 / 3, dtype=dtype)
        assert same(half_ops.thirds(at), third)
        assert same(half_ops.thirds(at.double(), dtype=dtype), third)
        assert same(half_ops.thirds(at, dtype=torch.float32), torch.full((20,), 1 / 3))
    assert fallback.widened()["bphalf::positive"] == 4


@pytest.mark.long
def test_K03_what_was_written_or_drawn_before_the_cpu_refuses_is_done_once(device, device_module, half_ops):
    x = numbers(6).to(device)
    for _ in range(2):
        at = x.clone()
        assert half_ops.add_and_double_(at) is at
        assert torch.equal(at.cpu(), ((x.cpu().float() + 1) * 2).half())
    found = []
    for dtype in (torch.float16, torch.float16, torch.float32):
        device_module.manual_seed(3)
        found.append((half_ops.noisy(x.to(dtype)).half(), device_module.default_generators[0].get_offset()))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][0], found[2][0])
    assert found[0][1] == found[1][1] == found[2][1]
    generator = torch.Generator(device).manual_seed(3)
    assert torch.equal(half_ops.noisy(x, generator), found[0][0])


@pytest.mark.long
def test_K03_what_the_cpu_does_not_support_in_float32_either_is_its_first_error(device, half_ops):
    x = numbers(3).to(device)
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
            half_ops.never(x)
    assert half_ops.fails(x.reshape(1, 3)).shape == (1, 3)
    with pytest.raises(RuntimeError, match="two dimensions are needed, not 1"):
        half_ops.fails(x)
    assert "bphalf::never" not in fallback.widened()
