"""The CPU fallback: whatever has no kernel is computed right, or refused clearly."""

import copy

import pytest
import torch

from torch_backplane import fallback


def on(device, *tensors):
    return [t.to(device) for t in tensors]


def same(result, expected, device):
    """Equal values, dtype, shape and strides, on the device."""
    assert result.device.type == device.type
    assert (result.dtype, result.shape, result.stride()) == (expected.dtype, expected.shape, expected.stride())
    torch.testing.assert_close(result.cpu(), expected, equal_nan=True)


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
    "split_copy": lambda x: torch.split_with_sizes_copy(x, [1, 2], 1),
    "index": lambda x: x[:, torch.tensor([2, 0], device=x.device)],
    "index by a host tensor": lambda x: x[:, torch.tensor([2, 0])],
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: torch.nonzero(x > 0),
    "unique": lambda x: torch.unique(x.round(), return_counts=True),
    "sort": lambda x: x.sort(1, descending=True),
    "topk": lambda x: x.topk(2),
    "cumsum": lambda x: x.cumsum(2),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "transposed in": lambda x: x.transpose(0, 2).exp(),
    "channels last": lambda x: x.unsqueeze(0).contiguous(memory_format=torch.channels_last).relu(),
    "offset": lambda x: x[1:, 1:].tanh(),
    "expanded": lambda x: x[:1].expand(3, 3, 4).sigmoid(),
    "empty": lambda x: x[:0].exp(),
    "scalar result": lambda x: x.mean(),
    "dtype change": lambda x: x > 0,
    "complex": lambda x: torch.fft.fft(x),
    "conj argument": lambda x: torch.fft.fft(x).conj() @ torch.fft.fft(x).mT,
    "svd": lambda x: torch.linalg.svdvals(x),
    "inverse": lambda x: torch.linalg.inv(x[0, :, :3] + 3 * torch.eye(3, device=x.device)),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1), mode="reflect"),
    "pool": lambda x: torch.nn.functional.max_pool1d(x, 2, return_indices=True),
    "conv1d": lambda x: torch.nn.functional.conv1d(x, x[:, :, :2]),
    "interpolate": lambda x: torch.nn.functional.interpolate(x, scale_factor=2),
    "foreach": lambda x: torch._foreach_add([x, x[0]], 2.0),
    "foreach lists": lambda x: torch._foreach_mul([x, x[0]], [x, x[1]]),
    "bincount": lambda x: torch.bincount(torch.tensor([0, 1, 1], device=x.device), minlength=4),
    "one_hot": lambda x: torch.nn.functional.one_hot(torch.tensor([0, 2], device=x.device)),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "roll": lambda x: x.roll(1, 2),
    "gather": lambda x: x.gather(1, torch.zeros(2, 1, 4, dtype=torch.int64, device=x.device)),
    "scatter_add": lambda x: x.scatter_add(1, torch.zeros(2, 1, 4, dtype=torch.int64, device=x.device), x),
    "embedding": lambda x: torch.nn.functional.embedding(torch.tensor([1, 0], device=x.device), x[0]),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    "group_norm": lambda x: torch.nn.functional.group_norm(x, 3),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_E29_E30_results_equal_the_cpus(device, function):
    expected, result = function(A), function(A.to(device))
    if isinstance(expected, torch.Tensor):
        expected, result = [expected], [result]
    assert len(expected) == len(result)
    for r, e in zip(result, expected, strict=True):
        same(r, e, device)


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
    for function, at in ((torch.sinc, A), (torch.abs, A), (torch.neg, A)):
        expected, out = make("cpu"), make(device)
        function(at, out=expected)
        assert function(at.to(device), out=out) is out
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
    torch.ops.aten.avg_pool3d.out(x.view(1, 1, 2, 3, 4), [1, 1, 2], out=out)  # writes as if there were no gaps


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
def test_E31_what_an_operator_leaves_of_its_out_stays(device, operator, make):
    expected, out = make("cpu"), make(device)
    operator(A, expected)
    torch.rand(1000, device=device).sinc()  # so that staging memory has held something else
    operator(A.to(device), out)
    same(out, expected, device)
    assert 7.0 in expected


def test_E31_several_outs(device):
    values, indices = torch.empty(0, device=device), torch.empty(0, dtype=torch.int64, device=device)
    torch.max(A.to(device), 1, out=(values, indices))
    same(values, A.max(1).values, device)
    same(indices, A.max(1).indices, device)


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
    lists = on(device, *cpu)
    torch._foreach_add_(cpu, 1.0)
    torch._foreach_add_(lists, 1.0)
    for r, e in zip(lists, cpu, strict=True):
        same(r, e, device)


def test_E31_mutated_lists_that_are_lent_whole(device):
    """The gradient scaler's check: the operator itself gets the list."""
    torch.manual_seed(0)
    cpu = [torch.rand(3, 4).t(), torch.rand(5)]
    lists = on(device, *cpu)
    fallback.reset_calls()
    for tensors in (cpu, lists):
        found, scale = (torch.full((1,), value, device=tensors[0].device) for value in (0.0, 0.5))
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, scale)
    assert fallback.calls()["aten::_amp_foreach_non_finite_check_and_unscale_"] == 1
    for result, expected in zip(lists, cpu, strict=True):
        same(result, expected, device)


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


def test_E31_running_statistics_are_written_back(device):
    cpu = torch.nn.BatchNorm1d(3)
    on_device = copy.deepcopy(cpu).to(device)
    same(on_device(A.to(device)), cpu(A), device)
    same(on_device.running_mean, cpu.running_mean, device)
    same(on_device.running_var, cpu.running_var, device)


def test_results_that_alias_an_argument_are_that_argument(device):
    library = torch.library.Library("backplane_alias_test", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x, "CPU")
    library.define("part(Tensor x) -> Tensor")
    library.impl("part", lambda x: x[1:], "CPU")
    library.define("maybe(Tensor? x, Tensor y) -> (Tensor, Tensor)")
    library.impl("maybe", lambda x, y: (y * 2, y * 3), "CPU")
    x = torch.arange(3.0).to(device)
    assert torch.ops.backplane_alias_test.same(x).data_ptr() == x.data_ptr()
    part = torch.ops.backplane_alias_test.part(x)
    assert (part.data_ptr(), part.tolist()) == (x[1:].data_ptr(), [1, 2])
    first, second = torch.ops.backplane_alias_test.maybe(None, x)
    assert (first.tolist(), second.tolist()) == ([0, 2, 4], [0, 3, 6])


def test_undefined_gradients_come_and_go(device):
    """native_layer_norm_backward takes and returns undefined tensors, by its mask."""
    mean, rstd = A.mean(-1, keepdim=True), A.std(-1, keepdim=True)
    call = torch.ops.aten.native_layer_norm_backward
    args = [A, A, [4], mean, rstd, None, None, [True, False, False]]
    moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in args]
    expected, result = call(*args), call(*moved)
    same(result[0], expected[0], device)
    assert result[1] is None
    assert result[2] is None


def test_mixed_devices_raise_torchs_own_text(device, device_module):
    x = torch.ones(3, device=device)
    text = "Expected all tensors to be on the same device"
    for bad in (
        lambda: torch.sinc(x, out=torch.empty(3)),
        lambda: torch.mm(x[:1, None], torch.ones(1, 1)),
        lambda: torch.cat([x, torch.ones(3)]),
        lambda: torch.linalg.solve_triangular(x[:1, None], torch.ones(1, 1), upper=True),
        lambda: torch.nn.functional.embedding(torch.tensor([0]), x[:, None]),
    ):
        with pytest.raises(RuntimeError, match=text):
            bad()
    if device_module.device_count() > 1:
        with pytest.raises(RuntimeError, match=text):
            torch.mm(x[:1, None], torch.ones(1, 1, device=f"{device.type}:1"))


def test_the_second_device_computes_too(device, device_module):
    for index in range(device_module.device_count()):
        there = torch.device(device.type, index)
        result = torch.sinc(A.to(there))
        assert result.device == there
        torch.testing.assert_close(result.cpu(), torch.sinc(A))


def test_E32_draws_advance_the_devices_generator_and_not_the_cpus(device):
    generator = torch.Generator(device).manual_seed(3)
    cpu_state = torch.get_rng_state()
    first, second = (torch.rand(5, device=device, generator=generator) for _ in range(2))
    generator.manual_seed(3)
    assert torch.equal(torch.rand(5, device=device, generator=generator).cpu(), first.cpu())
    assert not torch.equal(first.cpu(), second.cpu())
    torch.manual_seed(7)
    cpu_state = torch.get_rng_state()
    third = torch.randn(5, device=device)
    assert torch.equal(torch.get_rng_state(), cpu_state)
    torch.manual_seed(7)
    assert torch.equal(torch.randn(5, device=device).cpu(), third.cpu())
    with pytest.raises(RuntimeError):
        torch.rand(2, device=device, generator=torch.Generator("cpu"))


def test_E32_a_cpu_tensor_refuses_the_devices_generator(device):
    with pytest.raises(RuntimeError, match=f"Expected a 'cpu' device type for generator but found '{device.type}'"):
        torch.empty(4).uniform_(generator=torch.Generator(device))


def test_E32_dropout_draws_from_the_device(device, device_module):
    x = torch.ones(1000, device=device)
    device_module.manual_seed(1)
    first = torch.nn.functional.dropout(x, 0.25)
    device_module.manual_seed(1)
    assert torch.equal(torch.nn.functional.dropout(x, 0.25).cpu(), first.cpu())
    assert 650 < (first != 0).sum().item() < 850
    output, mask = torch.native_dropout(x, 0.5, True)
    assert torch.equal(output.cpu(), mask.cpu() * 2.0)


def test_E33_policies(device):
    x = torch.ones(2, device=device)
    with fallback.policy("error"), pytest.raises(NotImplementedError, match=r"aten::sinc.*Float"):
        torch.sinc(x)
    with fallback.policy("error", op="aten::sinc"):
        torch.cos(x)
        with pytest.raises(NotImplementedError):
            torch.sinc(x)
    with fallback.policy("warn"), pytest.warns(UserWarning, match="aten::erfc"):
        torch.erfc(x)
    with fallback.policy("error"), fallback.policy("cpu", op="aten::sinc.out"), fallback.policy("cpu", op="aten::sinc"):
        assert torch.sinc(x).shape == (2,)
    with pytest.raises(ValueError, match="cpu, warn, error"):
        fallback.policy("gpu")


def test_E33_none_at_import_registers_no_fallback(run_in_process, name):
    code = f"""
import torch
from torch_backplane import fallback
x = torch.ones(2, device="{name}")
assert not fallback.is_registered()
assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::sinc.out", "PrivateUse1")
try:
    torch.sinc(x)
except NotImplementedError as error:
    print("refused", "PrivateUse1" in str(error) or "{name}" in str(error).lower())
"""
    result = run_in_process(code, env={f"{name.upper()}_FALLBACK": "none"})
    assert result.stdout.split() == ["refused", "True"], result.stderr


def test_an_operator_without_a_cpu_kernel_is_refused(device):
    library = torch.library.Library("backplane_nowhere_test", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x, "CUDA")
    with pytest.raises(NotImplementedError, match="backplane_nowhere_test::f"):
        torch.ops.backplane_nowhere_test.f(torch.ones(1, device=device))


def test_a_fallback_between_queued_work_sees_and_keeps_the_order(device):
    x = torch.zeros(1 << 16, device=device)
    for i in range(50):
        x = (x + 1) * 1  # the kernel queues, the fallback computes
        assert i < 0 or x[-1].item() == i + 1
    assert x.sum().item() == 50 << 16


def test_convolutions_of_every_kind_with_gradients(device):
    torch.manual_seed(0)
    for layer, shape in (
        (torch.nn.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 9)),
        (torch.nn.Conv2d(3, 5, 3, stride=2, dilation=2), (2, 3, 12, 12)),
        (torch.nn.Conv3d(2, 2, 2, bias=False), (1, 2, 4, 4, 4)),
        (torch.nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2), (2, 4, 5, 5)),
    ):
        moved = copy.deepcopy(layer).to(device)
        x = torch.randn(shape, requires_grad=True)
        y = x.detach().to(device).requires_grad_()
        expected, result = layer(x), moved(y)
        same(result, expected, device)
        expected.square().sum().backward()
        result.square().sum().backward()
        torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-4, atol=1e-4)
        for p, q in zip(moved.parameters(), layer.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN], ids=lambda layer: layer.__name__)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_recurrent_layers_with_gradients(device, layer, bias):
    torch.manual_seed(0)
    cpu = layer(4, 5, num_layers=2, bias=bias, bidirectional=True, batch_first=True)
    moved = copy.deepcopy(cpu).to(device)
    expected, result = cpu(A)[0], moved(A.to(device))[0]
    torch.testing.assert_close(result.cpu(), expected)
    expected.square().sum().backward()
    result.square().sum().backward()
    for p, q in zip(moved.parameters(), cpu.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad)
    packed = torch.nn.utils.rnn.pack_padded_sequence(A.to(device), torch.tensor([3, 2]), batch_first=True)
    host = torch.nn.utils.rnn.pack_padded_sequence(A, torch.tensor([3, 2]), batch_first=True)
    torch.testing.assert_close(moved(packed)[0].data.cpu(), cpu(host)[0].data)


def _losses(device, steps, fused):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 16, 10),
    )
    x, y = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **fused)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("fused", [{"foreach": False}, {"foreach": True}], ids=["loop", "foreach"])
def test_a_network_trains_as_on_the_cpu(device, fused):
    expected, found = _losses("cpu", 10, fused), _losses(device, 10, fused)
    assert found[-1] < found[0] / 2
    assert found == pytest.approx(expected, rel=1e-3)


def test_a_transformer_trains_as_on_the_cpu(device):
    def losses(on):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        embedding, head = torch.nn.Embedding(11, 16), torch.nn.Linear(16, 11)
        model = torch.nn.ModuleList([embedding, layer, head]).to(on)
        tokens = torch.randint(0, 11, (4, 9)).to(on)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(8).to(on)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for _ in range(8):
            optimizer.zero_grad()
            logits = head(layer(embedding(tokens[:, :-1]), src_mask=mask, is_causal=True))
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            found.append(loss.item())
        return found

    expected, found = losses("cpu"), losses(device)
    assert found[-1] < found[0]
    assert found == pytest.approx(expected, rel=1e-3)
