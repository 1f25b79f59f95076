"""``torch_backplane.inductor.config.kernels = "triton"``: Inductor's own Triton code, for all of a graph."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters
from torch._inductor import config as settings
from torch._inductor.utils import run_and_get_code
from torch.utils import _pytree as pytree

from torch_backplane.inductor import config
from torch_backplane.inductor.language import language

DEVICE = "mydevice"
KERNEL = "async_compile.triton("


@pytest.fixture(autouse=True)
def written_in_triton():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with config.patch(kernels="triton"), settings.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


def real(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def on(device, values):
    return [one.to(device) if isinstance(one, torch.Tensor) and one.dim() else one for one in values]


def compiled(function, arguments, **how):
    """Results, and the code of the graph."""
    got, (code, *_) = run_and_get_code(torch.compile(function, fullgraph=True, **how), *on(DEVICE, arguments))
    assert "generated_kernel(async_compile" not in code
    return got, code


def agree(got, wanted, tolerance=1e-4):
    for ours, theirs in zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)


GRAPHS = {
    "pointwise": (lambda x, y: (x * 2 + y).sin().relu(), lambda: [real(33, 70), real(70)], 1),
    "rows": (lambda x: x.softmax(-1), lambda: [real(33, 700)], 1),
    "a sum in parts": (lambda x: x.sum(), lambda: [real(400, 330)], 2),
    "columns": (lambda x: x.sum(0), lambda: [real(70, 33)], 1),
    "moments": (lambda x: torch.var_mean(x, 1), lambda: [real(33, 3000)], 1),
    "places of extremes": (lambda x: (x.argmax(1), x.amin(1)), lambda: [real(33, 70)], 1),
    "a masked part": (lambda x, y: F.pad(torch.cat([x, y], 1), (1, 2)), lambda: [real(3, 7), real(3, 9)], 1),
    "reads at places": (lambda x, i: x[i] * 2, lambda: [real(33, 7), torch.tensor([3, -1, 0])], 1),
    "sums into places": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        lambda: [real(33), torch.tensor([3, 3, 0]), real(3)],
        2,
    ),
    "a product between": (
        lambda x, a, b: F.gelu(torch.addmm(x, a, b)),
        lambda: [real(40), real(30, 20), real(20, 40)],
        1,
    ),
    "a sort": (lambda x: (x + 1).sort(1)[0], lambda: [real(5, 16)], 1),
    "a scan": (lambda x: x.cumsum(1) * 2, lambda: [real(5, 333)], 1),
    "integers": (lambda x: (x * 3 // 2, x % 5, x.sum()), lambda: [torch.randint(-9, 9, (70, 3))], 1),
    "a number on the CPU": (lambda x, s: x * s + 1, lambda: [real(33), torch.tensor(2.5)], 1),
    "float64": (lambda x: x.exp().sum(1), lambda: [real(33, 7, dtype=torch.float64)], 1),
    "a written argument": (lambda x: x.add_(1).mul_(2), lambda: [real(33)], 1),
    "a list": (lambda *x: torch._foreach_add(x, 1.5), lambda: [real(33), real(7), real(90, 3)], 1),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_F23_a_graph_is_kernels_of_triton(case):
    function, make, kernels = GRAPHS[case]
    arguments = make()
    wanted = function(*[one.clone() for one in arguments])
    got, code = compiled(function, arguments)
    agree(got, wanted)
    assert kernels <= code.count(KERNEL) <= 2


def test_halves_are_computed_in_float32():
    x = real(33, 70, dtype=torch.bfloat16)
    agree(compiled(lambda x: x.softmax(-1) * 3, [x])[0], x.softmax(-1) * 3, 2e-2)


RANDOM = {
    "uniform": lambda: torch.rand(1001, device=DEVICE),
    "halves": lambda: torch.rand(1001, device=DEVICE, dtype=torch.bfloat16),
    "float64": lambda: (
        torch.rand(99, device=DEVICE, dtype=torch.float64),
        torch.randn(99, device=DEVICE, dtype=torch.float64),
    ),
    "normal": lambda: torch.randn(1001, device=DEVICE),
    "integers": lambda: [
        torch.randint(low, high, (301,), device=DEVICE)
        for low, high in ((-3, 99), (-3, 2**40), (0, 2**32), (-(2**63), 2**63 - 1))
    ],
    "dropout": lambda: F.dropout(torch.ones(300, 5, device=DEVICE), 0.3) * 2,
}


@pytest.mark.parametrize("case", RANDOM)
def test_F23_random_numbers_are_those_of_eager(case):
    drawn = []
    for call in (RANDOM[case], lambda: compiled(RANDOM[case], [])[0]):
        torch.manual_seed(3)
        drawn.append(pytree.tree_leaves((call(), torch.mydevice.get_rng_state())))
    for eager, ours in zip(*drawn, strict=True):
        tolerance = 1e-6 if eager.dtype in (torch.float32, torch.float64) else 0
        torch.testing.assert_close(ours, eager, rtol=tolerance, atol=tolerance)


def test_F23_a_step_of_a_model_and_its_optimizer():
    layers = [
        torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.LayerNorm(40), torch.nn.GELU(), torch.nn.Linear(40, 10))
        for _ in range(2)
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    layers[1].to(DEVICE)
    x, y, losses = real(20, 30), torch.randint(0, 10, (20,)), []
    for model, place in zip(layers, ("cpu", DEVICE), strict=True):
        optimizer = torch.optim.Adam(model.parameters())
        call = torch.compile(model) if place == DEVICE else model
        step = torch.compile(optimizer.step) if place == DEVICE else optimizer.step
        for _ in range(3):
            loss = F.cross_entropy(call(x.to(place)), y.to(place))
            loss.backward()
            step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-4)


def test_F23_sizes_may_vary():
    counters.clear()
    function = torch.compile(lambda x: (x * 2).softmax(-1) + x.sum(0), dynamic=True)
    for shape in ((5, 7), (33, 129), (64, 1000)):
        x = real(*shape)
        agree(function(x.to(DEVICE)), (x * 2).softmax(-1) + x.sum(0), 1e-3)
    assert counters["stats"]["unique_graphs"] == 1


def test_independent_kernels_are_combined():
    arguments = [real(33, 7), real(400)]

    def function(x, y):
        return x * 2, y.sin() + 1, x.sum(1)

    with settings.patch(combo_kernels=True):
        got, code = compiled(function, arguments)
    agree(got, function(*arguments))
    assert code.count(KERNEL) == 1


def test_F23_pointwise_kernels_are_autotuned_on_the_device(monkeypatch):
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    measured = []
    bench = CachingAutotuner.bench

    def watched(self, launcher, *args, **kwargs):
        measured.append(bench(self, launcher, *args, **kwargs))
        return measured[-1]

    monkeypatch.setattr(CachingAutotuner, "bench", watched)
    x = real(128, 256)
    got, _ = compiled(lambda x, y: x.t() * 2 + y, [x, real(256, 128)], options={"max_autotune_pointwise": True})
    assert got.shape == (256, 128)
    assert len(measured) > 1
    assert all(0 < one < float("inf") for one in measured)


def test_an_index_out_of_range_is_an_assertion_with_its_line():
    with pytest.raises(
        AssertionError, match=r"\.py:\d+: device_assert in program .* index out of bounds: 0 <= \w+ < 5"
    ):
        compiled(lambda x, i: x[i] * 2, [real(5), torch.tensor([9])])


def test_a_profile_has_the_kernels_by_name():
    x = real(50).to(DEVICE)
    function = torch.compile(lambda x: x.sin() * 2)
    function(x)
    with torch.profiler.profile() as profile:
        function(x)
        torch.mydevice.synchronize()
    assert "triton_poi_fused_mul_sin_0" in {event.name for event in profile.events()}


def test_F23_the_environment_chooses_too(monkeypatch):
    monkeypatch.setenv("MYDEVICE_INDUCTOR", "triton")
    with config.patch(kernels=""):
        assert language() == "triton"
    with config.patch(kernels="dialect"):
        assert language() == "dialect"
    monkeypatch.setenv("MYDEVICE_INDUCTOR", "cuda")
    with (
        config.patch(kernels=""),
        pytest.raises(ValueError, match="MYDEVICE_INDUCTOR is 'cuda': use one of dialect, triton"),
    ):
        language()


@pytest.mark.parametrize("dynamic", [False, True])
def test_T15_cpp_around_inductors_own_kernels(dynamic):
    def f(x):
        return (x.sin() + x.sum(0)).softmax(-1), x.cumsum(0) * 2

    x = torch.randn(17, 40)
    with settings.patch(cpp_wrapper=True):
        got, (code, *_) = run_and_get_code(torch.compile(f, dynamic=dynamic), x.to(DEVICE))
    assert "call_triton_" in code
    for one, other in zip(got, f(x), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-5)


def test_F23_without_triton_the_choice_is_refused():
    code = """
import sys
sys.modules["triton"] = None
import torch
torch.compile(lambda x: x * 2)(torch.ones(3, device="mydevice"))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "MYDEVICE_INDUCTOR": "triton"}, capture_output=True, text=True
    )
    assert run.returncode != 0
    assert "Triton is not installed: pip install 'triton==3.7.1'. Or unset" in run.stderr
