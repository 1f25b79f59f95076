"""max_autotune: a product of matrices by the device's operator or by a kernel of tiles, as it was measured."""

import os

import pytest
import torch
import torch.nn.functional as F
from measured_choices import set_times
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.codecache import CacheBase
from torch._inductor.codegen.simd import SIMDKernel
from torch._inductor.utils import run_and_get_code

from portable.compare import each, real
from torch_backplane import compiler
from torch_backplane.inductor import choices
from torch_backplane.inductor.product import tilings

# A torch without it warns, and products stay operators: docs/compile.md.
pytestmark = pytest.mark.skipif(not hasattr(SIMDKernel, "codegen_template_body"), reason="torch before 2.13")

KERNEL = "generated_kernel(async_compile"
TILES = "TILE_MULTIPLY"


@pytest.fixture(autouse=True)
def measures_anew(each_compiles):
    with config.patch(autotune_local_cache=False):
        yield


@pytest.fixture
def times(monkeypatch):
    """The measured milliseconds of ``tiles`` and the ``operator``, as the test sets them, and which were ``asked``."""
    return set_times(monkeypatch, tiles=1.0, operator=2.0)


def compiled(function, device, arguments, **settings):
    settings.setdefault("options", {"max_autotune": True})
    return run_and_get_code(torch.compile(function, **settings), *(one.to(device) for one in arguments))


def agree(got, wanted, tolerance):
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.long
def test_tiles_of_another_size_of_groups_are_refused(device, times, run_in_process, tmp_path):
    """What was laid out for one target is compiled for another where a package is loaded."""
    _, [code] = compiled(torch.mm, device, [real(70, 131), real(131, 90)])
    [text] = [one for one in code.split("'''\n") if TILES in one]
    path = tmp_path / "tiles"
    path.write_text(text.partition("'''")[0])
    definitions = tilings(compiler.target())[0].definitions()
    run = f"""
        from pathlib import Path
        from torch_backplane import compiler
        from torch_backplane.inductor.runtime import kernel_object
        text = Path({str(path)!r}).read_text()
        facts = dict(pointers=3, values=0, written=4, per_item=1, extents=[(1, -1, 0)], reports=False)
        try:
            kernel_object("mm", text, definitions={definitions!r}, **facts).prepare(0)
        except RuntimeError as error:
            print("chose for groups of" in str(error))
        else:
            print("compiled")
    """
    own = compiler.target().group_size
    seen = {}
    for items in (own, 16 if own == 1 else own // 2):
        options = ",".join(filter(None, (os.environ.get("MYDEVICE_OPTIONS"), f"items={items}")))
        seen[items] = run_in_process(run, env={"MYDEVICE_OPTIONS": options}).stdout.strip()
    assert seen == {own: "compiled", items: "True"}


def product():
    return [real(70, 131), real(131, 90)]


# A function, what makes its arguments, and how far the results may be apart.
FUSED = {
    "relu": (lambda a, b: (a @ b).relu(), product, 1e-4),
    "alone": (torch.mm, product, 1e-4),
    "one tile and a little": (lambda a, b: (a @ b).abs(), lambda: [real(257, 65), real(65, 259)], 1e-4),
    "thin": (lambda a, b: (a @ b).exp(), lambda: [real(1, 33), real(33, 50) * 0.1], 1e-4),
    "left transposed": (lambda a, b: (a.t() @ b).relu(), lambda: [real(131, 70), real(131, 90)], 1e-4),
    "right transposed": (lambda a, b: (a @ b.t()).relu(), lambda: [real(70, 131), real(90, 131)], 1e-4),
    "part of a larger one": (lambda a, b: (a[3:, 5:] @ b).relu(), lambda: [real(73, 136), real(131, 90)], 1e-4),
    "with itself": (lambda a: (a @ a.t()).relu(), lambda: [real(70, 131)], 1e-4),
    "bias and gelu": (lambda a, b, c: F.gelu(torch.addmm(c, a, b)), lambda: [*product(), real(90)], 1e-4),
    "a layer over a sequence": (
        lambda a, b, c: F.gelu(F.linear(a, b, c)),
        lambda: [real(3, 25, 40), real(50, 40), real(50)],
        1e-4,
    ),
    "bias that is expanded": (
        lambda a, b, c: torch.addmm(c.expand(70, 90), a, b).relu(),
        lambda: [*product(), real(90)],
        1e-4,
    ),
    "bias in a column, scaled": (
        lambda a, b, c: torch.addmm(c, a, b, alpha=0.5, beta=2).sin(),
        lambda: [real(70, 131) * 0.1, real(131, 90), real(70, 1)],
        1e-4,
    ),
    "with another matrix": (lambda a, b, c: (a @ b) * c + c.cos(), lambda: [*product(), real(70, 90)], 1e-3),
    "of a batch": (lambda a, b: (a @ b).relu(), lambda: [real(3, 40, 33), real(3, 33, 50)], 1e-4),
    "of a batch, added": (
        lambda a, b, c: torch.baddbmm(c, a, b, beta=0.5).relu(),
        lambda: [real(3, 40, 33), real(3, 33, 50), real(3, 1, 50)],
        1e-4,
    ),
    "bfloat16": (
        lambda a, b, c: F.gelu(torch.addmm(c, a, b)),
        lambda: [one.bfloat16() for one in (*product(), real(90))],
        4e-2,
    ),
    "float16": (lambda a, b: (a @ b).relu(), lambda: [one.half() for one in product()], 2e-2),
}
SHORT = "one tile and a little", "left transposed", "bias and gelu", "of a batch, added", "bfloat16"


@pytest.mark.parametrize("case", each(FUSED, *SHORT))
def test_one_kernel_instead_of_two(device, times, case):
    function, make, tolerance = FUSED[case]
    arguments = make()
    got, (code,) = compiled(function, device, arguments)
    agree(got, function(*(one.double() for one in arguments)), tolerance)
    assert (code.count(KERNEL), code.count(TILES), code.count("extern_kernels.")) == (1, 1, 0)


def test_the_operator_stays_where_it_is_faster(device, times):
    times["operator"] = 0.5
    arguments = [real(70, 131), real(131, 90)]
    got, (code,) = compiled(lambda a, b: (a @ b).relu(), device, arguments)
    agree(got, (arguments[0].double() @ arguments[1].double()).relu(), 1e-4)
    assert (code.count(KERNEL), code.count(TILES), code.count("extern_kernels.mm(")) == (1, 0, 1)
    assert times["asked"].count("operator") == 1
    assert times["asked"].count("tiles") == len(tilings(compiler.target()))


def test_nothing_is_measured_unless_it_is_asked_for(device, times):
    _, (code,) = compiled(lambda a, b: (a @ b).relu(), device, [real(70, 131), real(131, 90)], options={})
    assert (code.count(TILES), code.count("extern_kernels.mm(")) == (0, 1)
    assert times["asked"] == []


@pytest.mark.parametrize("settings", [{"mode": "max-autotune"}, {"mode": "max-autotune-no-cudagraphs"}])
def test_the_modes_that_ask_for_it(device, times, settings):
    arguments = [real(70, 131), real(131, 90)]
    got, (code,) = compiled(lambda a, b: (a @ b).relu(), device, arguments, options=None, **settings)
    agree(got, (arguments[0].double() @ arguments[1].double()).relu(), 1e-4)
    assert code.count(TILES) == 1


def test_operators_alone_are_measured_where_that_is_asked_for(device):
    """And not by torch's own way, which is CUDA's: there are two operators for a bias that is expanded."""
    settings = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN"}
    for dtype in (torch.float32, torch.float64):
        a, b, c = real(70, 131, dtype=dtype), real(131, 90, dtype=dtype), real(90, dtype=dtype)
        got, (code,) = compiled(
            lambda a, b, c: torch.addmm(c.expand(70, 90), a, b), device, [a, b, c], options=settings
        )
        agree(got, a.double() @ b.double() + c.double(), 1e-4)
        assert (code.count(TILES), code.count("extern_kernels.")) == (0, 1)


def test_a_torch_without_the_hook_says_what_it_does(device, times, monkeypatch):
    monkeypatch.delattr(SIMDKernel, "codegen_template_body")
    choices._warn_without_tiles.cache_clear()
    with pytest.warns(UserWarning, match="does not support kernels of tiles"):
        _, (code,) = compiled(lambda a, b: (a @ b).relu(), device, [real(70, 131), real(131, 90)])
    assert (code.count(TILES), code.count("extern_kernels.mm(")) == (0, 1)


def test_what_the_tiles_do_not_compute_is_the_operators(device, times):
    """float64 and integers; a product that is read twice is stored, too."""
    _, (code,) = compiled(
        lambda a, b: a @ b, device, [real(7, 8, dtype=torch.float64), real(8, 9, dtype=torch.float64)]
    )
    assert (code.count(TILES), code.count("extern_kernels.mm(")) == (0, 1)
    arguments = [real(70, 131), real(131, 90)]
    (stored, doubled), (code,) = compiled(lambda a, b: (lambda p: (p, p.relu()))(a @ b), device, arguments)
    wanted = arguments[0].double() @ arguments[1].double()
    agree(stored, wanted, 1e-4)
    agree(doubled, wanted.relu(), 1e-4)
    assert (code.count(KERNEL), code.count(TILES)) == (1, 1)


def test_sizes_may_vary(device, times):
    counters.clear()
    function = torch.compile(lambda a, b: (a @ b).relu(), dynamic=True, options={"max_autotune": True})
    for rows, depth, columns in ((33, 70, 41), (128, 31, 257), (2, 5, 3)):
        a, b = real(rows, depth), real(depth, columns)
        agree(function(a.to(device), b.to(device)), (a.double() @ b.double()).relu(), 1e-4)
    assert counters["stats"]["unique_graphs"] == 1
    assert "tiles" in times["asked"]


def test_gradients(device, times):
    layer = torch.nn.Sequential(torch.nn.Linear(33, 50), torch.nn.GELU(), torch.nn.Linear(50, 20))
    x = real(40, 33)
    layer(x).square().sum().backward()
    wanted = [one.grad.clone() for one in layer.parameters()]
    layer.zero_grad()
    layer.to(device)
    torch.compile(layer, options={"max_autotune": True})(x.to(device)).square().sum().backward()
    for one, grad in zip(layer.parameters(), wanted, strict=True):
        torch.testing.assert_close(one.grad.cpu(), grad, rtol=1e-3, atol=1e-3)
    assert "tiles" in times["asked"]


def test_it_is_measured_on_the_device(device, capfd):
    """Without a mock: whichever is faster, the values are right, and torch prints the measurements."""
    arguments = [real(70, 131), real(131, 90)]
    got, _ = compiled(lambda a, b: (a @ b).relu(), device, arguments)
    agree(got, (arguments[0].double() @ arguments[1].double()).relu(), 1e-4)
    printed = capfd.readouterr().err
    assert "AUTOTUNE mm(70x131, 131x90)" in printed
    assert "mm_tiles_" in printed


def test_what_was_measured_is_kept(device, times, tmp_path, monkeypatch):
    monkeypatch.setattr(CacheBase, "get_local_cache_path", staticmethod(lambda: tmp_path / "measured"))
    arguments = [real(50, 30), real(30, 40)]
    with config.patch(force_disable_caches=False, autotune_local_cache=True, fx_graph_cache=False):
        compiled(lambda a, b: (a @ b).relu(), device, arguments)
        asked = len(times["asked"])
        torch._dynamo.reset()
        times["operator"] = 0.5
        _, (code,) = compiled(lambda a, b: (a @ b).relu(), device, arguments)
    assert asked > 0
    assert len(times["asked"]) == asked
    assert code.count(TILES) == 1
