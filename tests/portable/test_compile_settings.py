"""torch.compile with options of Inductor that change what is generated, and with programs that are made otherwise."""

import pytest
import torch
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

from portable.test_compile import same
from torch_backplane.compat import inductor

pytestmark = pytest.mark.usefixtures("each_compiles")


def test_what_kernels_read_and_write_is_checked_for_nan(device):
    """Also what is no result; those, and inputs, torch checks itself."""

    def function(x):
        return torch.special.bessel_j0(x.log()).isnan(), x.to(torch.float8_e5m2), x.long() + 1

    call = torch.compile(function)
    x = torch.ones(3, device=device)
    with config.patch(nan_asserts=True):
        assert call(x)[2].tolist() == [2, 2, 2]
        with pytest.raises(AssertionError):
            call(-x)
        with pytest.raises(AssertionError):
            call(x * 0)
    torch._dynamo.reset()
    assert call(-x)[0].all()


def test_halves_are_rounded_as_by_eager_where_that_is_wanted(device):
    """Without the option what is between is float32, and more exact than eager."""
    x = torch.randn(64, 129, dtype=torch.bfloat16)

    def function(x):
        return (x.sin() * x + x).sigmoid()

    for wanted in (False, True):
        torch._dynamo.reset()
        with config.patch(emulate_precision_casts=wanted):
            y = torch.compile(function)(x.to(device)).cpu()
        assert torch.equal(y, function(x)) == wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2], ids=str)
def test_a_half_that_a_kernel_stores_is_read_again_as_it_is_stored(device, dtype):
    def function(x, i):
        product = (x.float() * i).to(dtype)
        return product, product.to(torch.float64), product.float().floor()

    x, i = (torch.randn(256) * 30).to(dtype), torch.arange(256) % 23 - 11
    got = torch.compile(function)(x.to(device), i.to(device))
    for one, wanted in zip(got, function(x, i), strict=True):
        assert torch.equal(one.cpu().float(), wanted.float())


def test_complex_numbers_are_computed_by_operators_among_kernels(device):
    z = torch.randn(6, 5, dtype=torch.complex64)

    def function(z):
        real = torch.view_as_real(z)
        return (z * (1 + 2j) + z.conj()).abs() + 1, z.exp() * z, real.sum(0) * 2, (z @ z.mT.conj()).real

    got, (code,) = run_and_get_code(torch.compile(function), z.to(device))
    same(got, function(z), 1e-4)
    assert "generated_kernel(async_compile" in code
    assert "torch.ops.aten.exp.default(" in code


def test_a_program_that_was_exported_and_saved_is_compiled(device, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Softmax(-1))
    batch = torch.export.Dim("batch", min=2, max=64)
    example = torch.ones(3, 8, device=device)
    torch.export.save(
        torch.export.export(model.to(device), (example,), dynamic_shapes=({0: batch},)), tmp_path / "model.pt2"
    )
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    x = torch.randn(5, 8)
    got, (code,) = run_and_get_code(torch.compile(loaded), x.to(device))
    torch.testing.assert_close(got.cpu(), model.cpu()(x), rtol=1e-5, atol=1e-5)
    assert "generated_kernel(async_compile" in code


def test_the_log_shows_a_kernels_text_line_by_line(device, caplog):
    logger = torch._logging.getArtifactLogger("torch._inductor.graph", "output_code")
    torch._logging.set_logs(output_code=True)
    try:
        logger.addHandler(caplog.handler)
        torch.compile(lambda x: x.sin() * 2)(torch.ones(8, device=device))
    finally:
        logger.removeHandler(caplog.handler)
        torch._logging.set_logs()
    lines = [line.strip() for line in caplog.text.splitlines()]
    assert any("= generated_kernel(async_compile, " in line for line in lines)
    assert "const f32 tmp1 = bp_sin((f32)tmp0);" in lines
    assert any(line.startswith("# Topologically Sorted Source Nodes: [sin, mul]") for line in lines)


@pytest.mark.parametrize("pair", [(1e-3, 1 - 0.999), (0.1, 1 - 0.9), (16777216.0, 16777217.0)], ids=str)
def test_numbers_that_are_one_when_they_are_rounded(device, pair):
    """Their text in a kernel is the same."""
    one, two = pair

    def function(x):
        return x * one + x * two

    x = torch.randn(8)
    torch.testing.assert_close(torch.compile(function)(x.to(device)).cpu(), function(x))


def test_a_comment_on_the_origin_of_a_scan_is_no_part_of_its_text(device):
    def function(x):
        shares = x.softmax(1)
        return shares, shares.cumsum(1)

    x = torch.randn(4, 33)
    with config.patch(comment_origin=True):
        got = torch.compile(function)(x.to(device))
    same(got, function(x), 1e-5)


@pytest.mark.parametrize("setting", ["benchmark_fusion", "benchmark_combo_kernel"])
def test_what_triton_would_measure_is_joined_without(device, setting):
    def function(x, y):
        return x.sin(), y.cos(), x.sum(0), (y + 1).amax(1), (x + 1).softmax(1) * 2

    x, y = torch.randn(8, 16), torch.randn(3, 5)
    codes = []
    for wanted in (False, True):
        torch._dynamo.reset()
        with config.patch({"combo_kernels": setting == "benchmark_combo_kernel", setting: wanted}):
            got, (code,) = run_and_get_code(torch.compile(function), x.to(device), y.to(device))
        same(got, function(x, y), 1e-5)
        codes.append(code.count("BP_KERNEL("))
    assert codes[0] == codes[1]


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ("fx_wrapper", "config.cpp_wrapper"),
        ("profile_bandwidth", "torch-backplane explain"),
        ("runtime_triton_nan_asserts", "config.nan_asserts"),
    ],
)
def test_a_setting_that_is_tritons_alone_is_refused_with_what_to_take(device, setting, instead):
    with config.patch({setting: True}), pytest.raises(Exception, match=f"config.{setting}.*{instead}"):
        torch.compile(lambda x: x + 1)(torch.ones(3, device=device))


# How a stream is made, and how it becomes the current one.
STREAMS = {
    "torch's": (lambda module, device: torch.Stream(device=device), lambda module, side: side),
    "the module's": (lambda module, device: module.Stream(), lambda module, side: module.stream(side)),
    "of a device and a priority": (
        lambda module, device: module.Stream(device, priority=0),
        lambda module, side: module.stream(side),
    ),
}


@pytest.mark.skipif(not inductor.has_streams(), reason="torch before 2.13")
@pytest.mark.parametrize("case", STREAMS)
def test_a_part_of_a_program_runs_on_another_stream(device, case):
    module = getattr(torch, device.type)
    make, enter = STREAMS[case]

    def function(x):
        side = make(module, device)
        early = x.sin()
        side.wait_stream(torch.accelerator.current_stream())
        with enter(module, side):
            product = (x * 2 + 1) @ x
        module.current_stream().wait_stream(side)
        return (product + 1) * early

    x = torch.randn(64, 64)
    got, (code,) = run_and_get_code(torch.compile(function, fullgraph=True), x.to(device))
    torch.testing.assert_close(got.cpu(), (x.mul(2).add(1) @ x + 1) * x.sin(), rtol=1e-4, atol=1e-4)
    assert "with stream1:" in code


@pytest.mark.long
@pytest.mark.skipif(inductor.has_cpp_wrapper(), reason="torch supports it")
def test_an_older_torch_has_no_cpp_wrapper(device):
    with config.patch(cpp_wrapper=True), pytest.raises(Exception, match=r"AOTInductor of .* need torch 2.13"):
        torch.compile(torch.sin)(torch.ones(3, device=device))
