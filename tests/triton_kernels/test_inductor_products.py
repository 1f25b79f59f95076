"""``max_autotune``: a product is the device's operator, tiles of the dialect or torch's Triton template."""

import pytest
import torch
import torch.nn.functional as F
from measured_choices import set_times
from torch._dynamo.utils import counters
from torch._inductor import config as settings
from torch._inductor.exc import InductorError
from torch._inductor.utils import run_and_get_code

from torch_backplane import compiler
from torch_backplane.inductor import choices, config, product_template

DEVICE = "mydevice"
TEMPLATE = "async_compile.triton('triton_tem"
DIALECT = "generated_kernel(async_compile"


@pytest.fixture(autouse=True)
def compiles_each():
    torch._dynamo.reset()
    torch.manual_seed(0)
    counters.clear()
    with settings.patch(force_disable_caches=True, autotune_local_cache=False):
        yield
    torch._dynamo.reset()


@pytest.fixture
def times(monkeypatch):
    """The measured milliseconds of each kind of choice, as the test sets them, and which were ``asked``."""
    return set_times(monkeypatch, template=0.1, tiles=1.0, operator=2.0)


def compiled(function, arguments, **options):
    how = {"options": {"max_autotune": True, **options}}
    got, (code,) = run_and_get_code(torch.compile(function, **how), *(one.to(DEVICE) for one in arguments))
    return got, code


def computed_by():
    """How many products each kind of choice computes."""
    prefix = f"{DEVICE}_product_"
    return {name[len(prefix) :]: count for name, count in counters["inductor"].items() if name.startswith(prefix)}


def real(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


# A function, what makes its arguments, and how far the results may be apart.
PRODUCTS = {
    "followed": (lambda a, b: (a @ b).relu(), lambda: [real(70, 131), real(131, 90)], 1e-3),
    "right transposed": (lambda a, b: (a @ b.t()).relu(), lambda: [real(70, 131), real(90, 131)], 1e-3),
    "bias and gelu": (
        lambda a, b, c: F.gelu(torch.addmm(c, a, b)),
        lambda: [real(70, 131), real(131, 90), real(90)],
        1e-3,
    ),
    "added and scaled": (
        lambda a, b, c: torch.addmm(c, a, b, alpha=0.5, beta=2) + 1,
        lambda: [real(70, 131), real(131, 90), real(70, 1)],
        1e-3,
    ),
    "of a batch": (lambda a, b: (a @ b).sin(), lambda: [real(3, 40, 33), real(3, 33, 50)], 1e-3),
    "of a batch, added": (
        lambda a, b, c: torch.baddbmm(c, a, b, beta=0.5).relu(),
        lambda: [real(3, 40, 33), real(3, 33, 50), real(3, 1, 50)],
        1e-3,
    ),
    "bfloat16": (
        lambda a, b: (a @ b).relu(),
        lambda: [real(70, 131, dtype=torch.bfloat16), real(131, 90, dtype=torch.bfloat16)],
        4e-2,
    ),
    "float16": (
        lambda a, b, c: F.silu(F.linear(a, b, c)),
        lambda: [real(3, 25, 40).half(), real(50, 40).half(), real(50).half()],
        2e-2,
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_F25_the_template_with_what_follows_it_is_one_kernel(times, case):
    function, make, tolerance = PRODUCTS[case]
    arguments = make()
    got, code = compiled(function, arguments)
    wanted = function(*(one.double() for one in arguments))
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=tolerance, atol=tolerance)
    assert (code.count(TEMPLATE), code.count(DIALECT), code.count("extern_kernels.")) == (1, 0, 0)
    assert {"template", "tiles", "operator"} == set(times["asked"])
    assert computed_by() == {"template": 1}


@pytest.mark.parametrize(("fastest", "found"), [("tiles", (0, 1, 0)), ("operator", (0, 1, 1))])
def test_F25_the_fastest_is_taken(times, fastest, found):
    times[fastest] = 0.01
    arguments = [real(70, 131), real(131, 90)]
    got, code = compiled(lambda a, b: (a @ b).relu(), arguments)
    torch.testing.assert_close(got.cpu(), (arguments[0] @ arguments[1]).relu(), rtol=1e-3, atol=1e-3)
    assert (code.count(TEMPLATE), code.count(DIALECT), code.count("extern_kernels.")) == found
    assert computed_by() == {fastest: 1}


@pytest.mark.parametrize(
    ("backends", "kinds"),
    [
        ("ATEN,TRITON,CPP", {"operator", "template", "tiles"}),
        ("aten, triton", {"operator", "template"}),
        ("TRITON", {"template"}),
        ("CPP", {"tiles"}),
        ("ATEN,CPP", {"operator", "tiles"}),
        ("ATEN", {"operator"}),
    ],
)
def test_F25_the_choices_are_those_that_are_asked_for(times, backends, kinds):
    arguments = [real(70, 131), real(131, 90)]
    for kind in kinds:
        torch._dynamo.reset()
        counters.clear()
        times[kind] = 0.01
        got, _ = compiled(lambda a, b: a @ b, arguments, max_autotune_gemm_backends=backends)
        torch.testing.assert_close(got.cpu(), arguments[0] @ arguments[1], rtol=1e-3, atol=1e-3)
        assert computed_by() == {kind: 1}
        times[kind] = 1.0
    measured = set(times["asked"])
    assert measured == kinds if len(kinds) > 1 else measured <= kinds  # a choice alone is not measured


def test_F25_what_no_choice_computes_is_refused(times, monkeypatch):
    arguments = [real(70, 131), real(131, 90)]
    with pytest.raises(InductorError, match=r"'ATEN,CUTLASS'; mydevice supports ATEN \(the device's operators\), CPP"):
        compiled(torch.mm, arguments, max_autotune_gemm_backends="ATEN,CUTLASS")
    doubles = [one.double() for one in arguments]
    with pytest.raises(InductorError, match=r"other dtypes than float32.*: add ATEN, the device's operator"):
        compiled(torch.mm, doubles, max_autotune_gemm_backends="TRITON,CPP")
    monkeypatch.setattr(product_template.triton, "is_usable", lambda: False)
    with pytest.raises(InductorError, match=r"TRITON: Triton runs no kernels on mydevice.*: add ATEN"):
        compiled(torch.mm, arguments, max_autotune_gemm_backends="TRITON")


def test_F25_blocks_that_local_memory_does_not_hold_are_skipped(monkeypatch, capfd):
    """In groups of several items; the arrays of one item are on its stack."""
    monkeypatch.setattr(choices, "_SPAN_S", 0.001)
    for name in ("_BLOCKS", "_BLOCKS_OF_GROUPS"):
        monkeypatch.setattr(product_template, name, ((128, 128, 128), (32, 32, 32)))
    arguments = [real(128, 128), real(128, 128)]
    got, code = compiled(torch.mm, arguments, max_autotune_gemm_backends="TRITON")
    torch.testing.assert_close(got.cpu(), arguments[0] @ arguments[1], rtol=1e-3, atol=1e-3)
    printed = capfd.readouterr().err
    assert "Ignoring this choice" not in printed
    is_skipped = compiler.target().group_size > 1
    assert ("inf ms" in printed) == is_skipped
    assert not is_skipped or "BLOCK_M : tl.constexpr = 32" in code


def test_F25_sizes_may_vary(times):
    function = torch.compile(lambda a, b, c: torch.addmm(c, a, b).relu(), dynamic=True, options={"max_autotune": True})
    for rows, depth, columns in ((33, 70, 41), (128, 31, 257), (2, 5, 3)):
        a, b, c = real(rows, depth), real(depth, columns), real(columns)
        got = function(a.to(DEVICE), b.to(DEVICE), c.to(DEVICE))
        torch.testing.assert_close(got.cpu(), torch.addmm(c, a, b).relu(), rtol=1e-3, atol=1e-3)
    assert counters["stats"]["unique_graphs"] == 1
    assert computed_by() == {"template": 1}


def test_F25_gradients(times):
    layer = torch.nn.Sequential(torch.nn.Linear(33, 50), torch.nn.GELU(), torch.nn.Linear(50, 20))
    x = real(40, 33)
    layer(x).square().sum().backward()
    wanted = [one.grad.clone() for one in layer.parameters()]
    layer.zero_grad()
    layer.to(DEVICE)
    torch.compile(layer, options={"max_autotune": True})(x.to(DEVICE)).square().sum().backward()
    for one, grad in zip(layer.parameters(), wanted, strict=True):
        torch.testing.assert_close(one.grad.cpu(), grad, rtol=1e-3, atol=1e-3)
    assert computed_by() == {"template": 5}


def test_random_numbers_stay_out_of_a_template(times):
    """Its kernel has torch's numbers, and not those of the device's sequence."""
    arguments = [one.to(DEVICE) for one in (real(70, 131), real(131, 90))]

    def function(a, b):
        return F.dropout(a @ b, 0.5)

    torch.manual_seed(3)
    eager = function(*arguments)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(function, arguments)[0], eager, rtol=1e-3, atol=1e-3)


def test_without_kernels_of_the_dialect_templates_and_operators_are_left(times):
    arguments = [real(70, 131), real(131, 90)]
    with config.patch(kernels="triton"):
        got, code = compiled(lambda a, b: (a @ b).relu(), arguments)
    torch.testing.assert_close(got.cpu(), (arguments[0] @ arguments[1]).relu(), rtol=1e-3, atol=1e-3)
    assert (code.count(TEMPLATE), code.count(DIALECT)) == (1, 0)
    assert set(times["asked"]) == {"template", "operator"}


def test_F25_choices_are_measured_on_the_device(capfd):
    arguments = [real(70, 131), real(131, 90)]
    got, _ = compiled(lambda a, b: (a @ b).relu(), arguments)
    torch.testing.assert_close(got.cpu(), (arguments[0] @ arguments[1]).relu(), rtol=1e-3, atol=1e-3)
    printed = capfd.readouterr().err
    assert "AUTOTUNE mm(70x131, 131x90)" in printed
    assert "  triton_mm_" in printed
    assert "  mm_tiles_" in printed
    assert "inf ms" not in printed


@pytest.mark.parametrize("kernels", ["dialect", "triton"])
def test_F25_cpp_has_no_templates(times, kernels):
    arguments = [real(70, 131), real(131, 90)]
    times["tiles"] = 3.0
    with config.patch(kernels=kernels):
        got, _ = compiled(lambda a, b: (a @ b).relu(), arguments, cpp_wrapper=True)
    torch.testing.assert_close(got.cpu(), (arguments[0] @ arguments[1]).relu(), rtol=1e-3, atol=1e-3)
    assert computed_by() == {"operator": 1}
