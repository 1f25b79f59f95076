"""The CPU fallback: an operator without a kernel is computed right, or refused clearly."""

import pytest
import torch
from answers import same

from torch_backplane import fallback

NAMESPACE = "bp_test_fallback"


A = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) / 7 - 1

FUNCTIONS = {
    "sub": lambda x: x - x.flip(0),
    "mul by a host scalar": lambda x: x * torch.tensor(2.5),
    "host scalar first": lambda x: torch.tensor(2.5) - x,
    "matmul": lambda x: x @ x.transpose(1, 2),
    "reduction": lambda x: x.sum((0, 2)),
    "several outputs": lambda x: x.max(1),
    "list in": lambda x: torch.cat([x, x[:, :1]], 1),
    "list out": lambda x: torch.ops.aten.unbind_copy(x, 1),
    "index": lambda x: x[:, torch.tensor([2, 0], device=x.device)],
    "index by a host tensor": lambda x: x[:, torch.tensor([2, 0])],
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: torch.nonzero(x > 0),
    "transposed in": lambda x: x.transpose(0, 2).exp(),
    "channels last": lambda x: x.unsqueeze(0).contiguous(memory_format=torch.channels_last).relu(),
    "offset": lambda x: x[1:, 1:].tanh(),
    "expanded": lambda x: x[:1].expand(3, 3, 4).sigmoid(),
    "empty": lambda x: x[:0].exp(),
    "scalar result": lambda x: x.mean(),
    "dtype change": lambda x: x > 0,
    "complex": lambda x: torch.fft.fft(x),
    "conj argument": lambda x: torch.fft.fft(x).conj() @ torch.fft.fft(x).mT,
    "pool": lambda x: torch.nn.functional.max_pool1d(x, 2, return_indices=True),
    "foreach": lambda x: torch._foreach_add([x, x[0]], 2.0),
    "foreach lists": lambda x: torch._foreach_mul([x, x[0]], [x, x[1]]),
    "one_hot": lambda x: torch.nn.functional.one_hot(torch.tensor([0, 2], device=x.device)),
    "scatter_add": lambda x: x.scatter_add(1, torch.zeros(2, 1, 4, dtype=torch.int64, device=x.device), x),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_E29_E30_results_equal_the_cpus(device, function):
    same(function(A.to(device)), function(A), device)


def test_E29_an_operator_runs_through_it_and_is_counted(device):
    fallback.reset_calls()
    x = torch.ones(3, device=device)
    assert torch.frac(x / 2).tolist() == [0.5, 0.5, 0.5]
    assert fallback.calls()["aten::frac.out"] == 1


def test_E30_factories_without_tensors(device, device_module):
    fallback.reset_calls()
    same(torch.triu_indices(3, 4, device=device), torch.triu_indices(3, 4), device)
    assert fallback.calls() == {"aten::triu_indices": 1}
    if device_module.device_count() > 1:
        assert torch.tril_indices(2, 2, device=f"{device.type}:1").device.index == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.empty(0, device=d),
        lambda d: torch.empty(2, 3, 4, device=d),
        lambda d: torch.zeros(4, 3, 2, device=d).permute(2, 1, 0),
        lambda d: torch.zeros(2, 3, 9, device=d)[:, :, 1::2],
        lambda d: torch.zeros(30, device=d)[6:].view(2, 3, 4),
    ],
    ids=["empty", "right", "permuted", "gaps", "offset"],
)
def test_E31_out_of_every_layout(device, make):
    for function in (torch.sinc, torch.abs, torch.neg):
        expected, out = make("cpu"), make(device)
        function(A, out=expected)
        assert function(A.to(device), out=out) is out
        same(out, expected, device)


def test_E31_out_of_the_wrong_size_is_resized_with_torchs_warning(device):
    out = torch.zeros(2, device=device)
    with pytest.warns(UserWarning, match="output with one or more elements was resized"):
        torch.sinc(A.to(device), out=out)
    same(out, torch.sinc(A), device)
    shared = torch.zeros(24, device=device)
    view = shared.view(24)[:0]
    torch.abs(A.to(device), out=view)  # fits in the storage: nothing grows
    assert torch.equal(shared.cpu(), A.abs().flatten())
    expected, found = torch.zeros(4), torch.zeros(4, device=device)
    torch.abs(A, out=expected[4:])
    torch.abs(A.to(device), out=found[4:])  # an empty view at the end of a storage, which grows
    assert found.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert found.tolist() == [0, 0, 0, 0]


def average(x, out):
    torch.ops.aten.avg_pool3d.out(x.view(1, 1, 2, 3, 4), [1, 1, 2], out=out)  # writes as if it were contiguous


def evaluated_norm(x, out):
    mean = torch.full((3,), 0.5, device=x.device)
    torch.native_batch_norm(x, None, None, mean, mean, False, 0.1, 1e-5, out=(torch.empty_like(x), out, out.clone()))


@pytest.mark.parametrize(
    ("operator", "make"),
    [
        (average, lambda d: torch.full((1, 1, 2, 3, 2, 2), 7.0, device=d)[..., 0]),
        (evaluated_norm, lambda d: torch.full((3,), 7.0, device=d)),
    ],
    ids=["gaps", "evaluated norm"],
)
def test_E31_what_an_operator_does_not_write_of_its_out_stays(device, operator, make):
    expected, out = make("cpu"), make(device)
    operator(A, expected)
    torch.rand(1000, device=device).sinc()  # so that staging memory has held something else
    operator(A.to(device), out)
    same(out, expected, device)
    assert 7.0 in expected


def test_E31_in_place_also_on_views(device):
    cpu, x = A.clone(), A.to(device)
    for t in (cpu, x):
        t.mul_(2)
        t[:, 1].sub_(3)
        t.transpose(0, 2)[::2].clamp_(min=0)
        t[0, 0].exp_()
        t.index_put_((torch.tensor([1], device=t.device),), torch.tensor(5.0))
        t[1, :2] *= t[1, 1:].clone()
    same(x, cpu, device)
    assert x.mul_(1) is x


def test_E31_mutated_lists(device):
    cpu = [A.clone(), A[0].t().clone(), A.new_zeros(0)]
    lists = [t.to(device) for t in cpu]
    torch._foreach_add_(cpu, 1.0)
    torch._foreach_add_(lists, 1.0)
    same(lists, cpu, device)


def test_E31_a_mutated_list_is_one_call(device):
    """The gradient scaler's check: the operator itself gets the list."""
    torch.manual_seed(0)
    cpu = [torch.rand(3, 4).t(), torch.rand(5)]
    lists = [t.to(device) for t in cpu]
    fallback.reset_calls()
    for tensors in (cpu, lists):
        found, scale = (torch.full((1,), value, device=tensors[0].device) for value in (0.0, 0.5))
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, scale)
    assert fallback.calls()["aten::_amp_foreach_non_finite_check_and_unscale_"] == 1
    same(lists, cpu, device)


FORMATS = {
    "channels last": lambda d: (A.to(d).unsqueeze(0) + 1).contiguous(memory_format=torch.channels_last),
    "transposed": lambda d: A.to(d).unsqueeze(0).transpose(1, 3),
    "expanded": lambda d: A.to(d)[:1].expand(2, 3, 4).unsqueeze(0),
    "sliced": lambda d: A.to(d).unsqueeze(0)[..., ::2],
    "negative": lambda d: torch.complex(A, A + 1).to(d).unsqueeze(0).conj().imag,
    "conjugate": lambda d: torch.complex(A, A + 1).to(d).unsqueeze(0).conj(),
}
FORMAT_OPS = {
    "pow": lambda x: x.pow(3),
    "angle": torch.angle,
    "digamma": lambda x: torch.digamma(x.abs()),
    "interpolate": lambda x: torch.nn.functional.interpolate(x.abs(), scale_factor=2),
    "flip": lambda x: x.flip(-1),
    "logical_not": torch.logical_not,
    "cumsum to another dtype": lambda x: x.to(torch.complex128).cumsum(1),
    "sgn": torch.sgn,
    "in place": lambda x: x.clone().sub_(x),
}


@pytest.mark.parametrize("operator", FORMAT_OPS.values(), ids=FORMAT_OPS.keys())
@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS.keys())
def test_strides_and_lazy_bits_are_the_cpus(device, make, operator):
    expected, result = operator(make("cpu")), operator(make(device))
    assert (result.is_conj(), result.is_neg()) == (expected.is_conj(), expected.is_neg())
    same(result, expected, device)


def test_results_that_alias_an_argument_are_that_argument(device, ops):
    x = torch.arange(3.0).to(device)
    assert ops.define("same(Tensor x) -> Tensor", CPU=lambda x: x)(x).data_ptr() == x.data_ptr()
    part = ops.define("part(Tensor x) -> Tensor", CPU=lambda x: x[1:])(x)
    assert (part.data_ptr(), part.tolist()) == (x[1:].data_ptr(), [1, 2])
    maybe = ops.define("maybe(Tensor? x, Tensor y) -> (Tensor, Tensor)", CPU=lambda x, y: (y * 2, y * 3))
    assert [t.tolist() for t in maybe(None, x)] == [[0, 2, 4], [0, 3, 6]]


def test_undefined_gradients_come_and_go(device):
    """native_layer_norm_backward has undefined tensors as arguments and results, by its mask."""
    mean, rstd = A.mean(-1, keepdim=True), A.std(-1, keepdim=True)
    call = torch.ops.aten.native_layer_norm_backward
    results = []
    for on in (device, "cpu"):
        a, mean, rstd = (t.to(on) for t in (A, mean, rstd))
        first, *others = call(a, a, [4], mean, rstd, None, None, [True, False, False])
        assert others == [None, None]
        results.append(first)
    same(*results, device)


def test_E32_a_cpu_tensor_refuses_the_devices_generator(device):
    with pytest.raises(RuntimeError, match=f"Expected a 'cpu' device type for generator but found '{device.type}'"):
        torch.empty(4).uniform_(generator=torch.Generator(device))


def test_E32_the_mask_of_dropout_is_that_of_its_result(device):
    output, mask = torch.native_dropout(torch.ones(1000, device=device), 0.5, True)
    assert torch.equal(output.cpu(), mask.cpu() * 2.0)


def test_a_fallback_between_queued_work_sees_and_keeps_the_order(device):
    x = torch.zeros(1 << 16, device=device)
    for i in range(20):
        x = (x + 1) * 1  # the kernel queues, the fallback computes
        assert x[-1].item() == i + 1
    assert x.sum().item() == 20 << 16
