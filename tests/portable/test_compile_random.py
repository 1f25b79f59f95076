"""Random numbers of compiled programs are eager's: torch_backplane.inductor.random."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor import config
from torch._inductor.codegen.simd import SIMDKernel
from torch._inductor.utils import run_and_get_code
from torch.utils.checkpoint import checkpoint

from portable import compare
from portable.compare import FLOATS, cases
from torch_backplane.compat import inductor

pytestmark = pytest.mark.usefixtures("each_compiles")

# Odd sizes: a call takes whole blocks of four numbers.
ROWS = 37, 101
WHOLE = [torch.int64, torch.int32, torch.uint8, torch.bool]


def place(device_module):
    """The offset of the default generator."""
    return device_module.get_rng_state()[8:].view(torch.int64).item()


def same(got, wanted):
    """Normal numbers within two roundings: kernels have a logarithm each."""
    compare.same(got, [one.cpu() for one in wanted], 1e-6)


def both(device_module, function, *arguments, **settings):
    """Results of eager and compiled, from one seed; the generator ends where eager's does."""
    results = []
    for call in (function, torch.compile(function, fullgraph=True, **settings)):
        torch.manual_seed(3)
        found = call(*arguments)
        results.append((found if isinstance(found, tuple) else (found,), place(device_module)))
    (wanted, at), (got, reached) = results
    assert reached == at
    same(got, wanted)
    return wanted


MADE = {
    "uniform": lambda x: torch.rand(ROWS, device=x.device, dtype=x.dtype),
    "normal": lambda x: torch.randn(ROWS, device=x.device, dtype=x.dtype),
    "of another's layout": lambda x: (torch.rand_like(x.t()), torch.randn_like(x.t())),
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout, with its mask": lambda x: torch.native_dropout(x, 0.3, True),
    "dropout of everything": lambda x: torch.native_dropout(x, 1.0, True),
    "none": lambda x: (torch.rand(0, 5, device=x.device, dtype=x.dtype), torch.rand(5, device=x.device, dtype=x.dtype)),
}


@pytest.mark.parametrize(
    ("case", "dtype"),
    cases(
        {case: FLOATS for case in MADE}, lambda case, dtype: dtype == torch.float32 or case in ("uniform", "dropout")
    ),
)
def test_F20_floats(device, device_module, case, dtype):
    both(device_module, MADE[case], torch.randn(ROWS).to(device, dtype))


@pytest.mark.long
def test_F20_whole_numbers(device, device_module):
    def function(x):
        return tuple(torch.randint(0, 2, (1001,), device=x.device, dtype=dtype) for dtype in (*WHOLE, *FLOATS[:2]))

    both(device_module, function, torch.ones(1, device=device))


RANGES = [(7, 8), (3, 2**28 + 2), (3, 2**28 + 3), (0, 3 << 30), (-5, 2**32 - 6), (-5, 2**32 - 5), (-5, 2**32 - 4)]
RANGES += [(-(2**62), 2**62), (-(2**63), 2**63 - 1)]


def test_F20_whole_numbers_of_any_range(device, device_module):
    def function(x):
        return tuple(torch.randint(low, high, (1001,), device=x.device) for low, high in RANGES)

    wanted = both(device_module, function, torch.ones(1, device=device))
    for one, (low, high) in zip(wanted, RANGES, strict=True):
        assert low <= one.min().item() <= one.max().item() < high


# What is a call of the device's operator, among what is not.
OTHERS = {
    "exponential": lambda x: torch.empty_like(x).exponential_(2),
    "normal, of parameters": lambda x: torch.empty_like(x).normal_(2, 3),
    "normal, of tensors": lambda x: torch.normal(x, x.abs()),
    "uniform, of parameters": lambda x: torch.empty_like(x).uniform_(2, 3),
    "log normal": lambda x: torch.empty_like(x).log_normal_(0.3, 1),
    "cauchy": lambda x: torch.empty_like(x).cauchy_(2, 3),
    "geometric": lambda x: torch.empty_like(x).geometric_(0.3),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli, of a number": lambda x: (torch.bernoulli(x, 0.4), torch.bernoulli(x, 0.0), torch.bernoulli(x, 1.0)),
    "bernoulli, in place": lambda x: torch.empty_like(x).bernoulli_(0.4),
    "randomized relu": lambda x: F.rrelu(x, training=True),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "dropout of channels": lambda x: F.dropout2d(x[None, :, None], 0.5),
    "permutation": lambda x: torch.randperm(9, device=x.device),
    "multinomial": lambda x: torch.multinomial(x.exp(), 3),
}


@pytest.mark.parametrize("part", range(3))
def test_F20_others(device, device_module, part):
    def function(x):
        results = []
        for case in list(OTHERS)[part::3]:
            found = OTHERS[case](x)
            results += [torch.rand_like(x), *(found if isinstance(found, tuple) else (found,))]
        return *results, torch.rand_like(x)

    both(device_module, function, torch.randn(ROWS).to(device))


MIXES = {
    "a call first": lambda x: (torch.randperm(9, device=x.device), torch.rand_like(x)),
    "a call between": lambda x: (torch.rand_like(x), torch.randperm(9, device=x.device), torch.randn_like(x)),
    "several": lambda x: (
        torch.bernoulli(x.sigmoid()),
        torch.randperm(9, device=x.device),
        torch.multinomial(x.exp(), 3),
        torch.empty_like(x).exponential_(),
        F.dropout(x, 0.5),
        F.gumbel_softmax(x),
    ),
}


@pytest.mark.parametrize("case", MIXES)
def test_F20_calls_and_kernels_draw_in_the_programs_order(device, device_module, case):
    both(device_module, MIXES[case], torch.randn(ROWS).to(device))


def test_F20_sizes_that_change(device, device_module):
    def function(x):
        return torch.rand_like(x), torch.randint(0, x.shape[0], (x.shape[1],), device=x.device), F.dropout(x, 0.2)

    call = torch.compile(function, dynamic=True, fullgraph=True)
    for size in (7, 9), (5, 4), (33, 2):
        x = torch.randn(size).to(device)
        torch.manual_seed(3)
        wanted = function(x)
        torch.manual_seed(3)
        with torch.compiler.set_stance("fail_on_recompile" if size != (7, 9) else "default"):
            got = call(x)
        same(got, wanted)


class Net(nn.Module):
    def __init__(self, saves=True):
        super().__init__()
        self.first, self.second, self.saves = nn.Linear(16, 16), nn.Linear(16, 16), saves

    def middle(self, x):
        return F.dropout(self.second(F.gelu(F.dropout(self.first(x), 0.2))), 0.3)

    def forward(self, x):
        y = self.middle(x) if self.saves else checkpoint(self.middle, x, use_reentrant=False)
        q = y.view(1, 8, 2, 8).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, dropout_p=0.3).transpose(1, 2).reshape(8, 16)
        return F.dropout(y, 0.1)


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("saves", [True, False], ids=["saved", "checkpointed"])
def test_F20_a_training_step_with_dropout(device, device_module, saves, dynamic):
    """A backward has the masks of its forward; two dropouts of one graph are not one."""
    model = Net(saves).to(device)
    twin = copy.deepcopy(model)
    x = torch.randn(8, 16).to(device)
    results = []
    for module, call in ((model, model), (twin, torch.compile(twin, dynamic=dynamic))):
        torch.manual_seed(1)
        found = []
        for _ in range(3):
            y = call(x)
            y.square().sum().backward()
            found += [y.detach(), module.first.weight.grad.clone()]
        results.append((found, place(device_module)))
    (wanted, at), (got, reached) = results
    assert reached == at
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_F20_equal_calls_of_a_training_graph_are_two(device, device_module):
    def step(x):
        drawn = [torch.ops.aten.exponential(x.detach(), 1.0) for _ in range(2)]
        return (x * drawn[0] - x * drawn[1]).sum() * torch.rand(1, device=x.device).sum()

    def gradient(step, x):
        x = x.clone().requires_grad_()
        step(x).backward()
        return x.grad

    x, results = torch.randn(ROWS).to(device), []
    for call in (step, torch.compile(step)):
        torch.manual_seed(3)
        results.append(gradient(call, x))
    assert results[0].abs().min().item() > 0
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_F20_a_graph_takes_its_numbers_at_once(device):
    torch.manual_seed(0)
    function = lambda x: F.dropout(x, 0.1) + torch.rand_like(x) * torch.randn_like(x)  # noqa: E731
    _, (code,) = run_and_get_code(torch.compile(function), torch.randn(ROWS).to(device))
    assert code.count("take_numbers.default(") == 1
    assert code.count("generated_kernel(") == 1


@pytest.mark.requires("graph")
def test_F20_a_recorded_graph_goes_on_in_the_sequence(device, device_module):
    function = torch.compile(lambda x: (F.dropout(x, 0.3), torch.rand_like(x)))
    x = torch.randn(ROWS).to(device)
    function(x)
    torch.manual_seed(3)
    wanted = [function(x) for _ in range(3)]
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        results = function(x)
    torch.manual_seed(3)
    for expected in wanted:
        graph.replay()
        for one, other in zip(results, expected, strict=True):
            assert torch.equal(one, other)


def test_F20_the_second_device(device, device_module):
    if device_module.device_count() < 2:
        pytest.skip("the device is alone")
    other = torch.device(device.type, 1)
    results = []
    for function in (torch.rand_like, torch.compile(lambda x: torch.rand_like(x))):
        device_module.manual_seed_all(5)
        results.append([function(torch.ones(ROWS, device=other))])
    same(*results)
    assert results[1][0].device == other


@pytest.mark.skipif(not hasattr(SIMDKernel, "codegen_template_body"), reason="max_autotune needs torch 2.13")
def test_F20_compilation_takes_no_numbers(device, device_module):
    """Autotuning does, for its examples."""
    x = torch.randn(16, 33).to(device)
    both(device_module, lambda x: F.dropout(x @ x.t(), 0.3), x, options={"max_autotune": True})


def test_F20_with_all_of_them_calls(device, device_module):
    with config.patch(fallback_random=True):
        both(device_module, MADE["dropout"], torch.randn(ROWS).to(device))


@pytest.mark.long
@pytest.mark.skipif(not inductor.has_cpp_wrapper(), reason="torch before 2.13")
def test_F20_in_a_wrapper_of_c(device, device_module):
    with config.patch(cpp_wrapper=True):
        both(
            device_module,
            lambda x: (F.dropout(x, 0.3), torch.rand_like(x) + torch.randn_like(x)),
            torch.randn(ROWS).to(device),
        )


@pytest.mark.long
@pytest.mark.parametrize("policy", ["wait", "background"])
def test_F20_whatever_the_policy_of_kernels_is(device, run_in_process, tmp_path, policy):
    """What takes the numbers has nothing to compute in its place while it is not compiled."""
    code = f"""
import torch
from torch_backplane import compiler
x, found = torch.ones(37, 101, device="{device.type}"), []
torch.nn.functional.dropout(x, 0.3)
compiler.synchronize()  # until eager's kernel is there, the CPU computes, with other numbers
for call in (torch.nn.functional.dropout, torch.compile(torch.nn.functional.dropout)):
    torch.manual_seed(3)
    found.append(call(x, 0.3))
print(torch.equal(*found))
"""
    ran = run_in_process(code, env={"MYDEVICE_KERNELS": policy, "MYDEVICE_CACHE_DIR": str(tmp_path)})
    assert ran.stdout.strip() == "True"


def test_wrong_counts_and_devices_are_refused(device):
    take = torch.ops.backplane.take_numbers
    with pytest.raises(ValueError, match="a count of numbers, not -4"):
        take(-4, 0)
    with pytest.raises(ValueError, match="the index of a device, not 99"):
        take(4, 99)
