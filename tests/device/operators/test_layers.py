"""Recurrent layers, normalisations, embedding bags, sampling and losses: values and gradients are the CPU's."""

import copy

import pytest
import torch
from answers import same
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

from torch_backplane.testing.observe import tensors


def compare(device, function, *inputs, tolerance=1e-5):
    """The results of a function of tensors, and the gradients of the floating ones, are the CPU's."""
    found = []
    for on in ("cpu", device):
        x = [t.detach().to(on).requires_grad_(t.is_floating_point()) for t in inputs]
        outputs = tensors(function(*x))
        loss = sum(t.sin().sum() for t in outputs if t.requires_grad)
        gradients = torch.autograd.grad(loss, [t for t in x if t.requires_grad], allow_unused=True)
        found.append([*outputs, *tensors(gradients)])
    same(*reversed(found), device, strides=False, tolerance=(tolerance, tolerance))


def compare_layer(device, layer, *inputs, second=False, tolerance=1e-4):
    """As ``compare``, with the layer's parameters and buffers, and second gradients if wanted."""
    found = []
    for on, module in (("cpu", layer), (device, copy.deepcopy(layer).to(device))):
        x = [t.detach().to(on).requires_grad_(t.is_floating_point()) for t in inputs]
        outputs = tensors(module(*x))
        leaves = [*(t for t in x if t.requires_grad), *module.parameters()]
        first = torch.autograd.grad(sum(t.square().sum() for t in outputs), leaves, create_graph=second)
        more = torch.autograd.grad(sum(t.sin().sum() for t in first), leaves, allow_unused=True) if second else ()
        found.append([*outputs, *first, *tensors(more), *module.buffers()])
    same(*reversed(found), device, strides=False, tolerance=(tolerance, tolerance))


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (nn.LSTM, {"batch_first": True}),
        (nn.LSTM, {"proj_size": 3, "num_layers": 2, "bidirectional": True, "bias": False}),
        (nn.GRU, {"bias": False}),
        (nn.GRU, {"num_layers": 2, "bidirectional": True}),
        (nn.RNN, {}),
        (nn.RNN, {"nonlinearity": "relu"}),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else str(v),
)
def test_recurrent_layers(device, layer, options):
    torch.manual_seed(0)
    module = layer(4, 5, **options)
    compare_layer(device, module, torch.randn(3, 2, 4), second=True)
    compare_layer(device, module, torch.randn(3, 4))


@pytest.mark.parametrize(("layer", "sorted_"), [(nn.LSTM, True), (nn.GRU, False), (nn.RNN, False)])
def test_packed_sequences(device, layer, sorted_):
    torch.manual_seed(0)
    module = layer(4, 5, num_layers=2, bidirectional=True)
    lengths = torch.tensor([5, 3, 1] if sorted_ else [1, 5, 3])

    def run(x, module):
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=sorted_)
        output, state = module(packed)
        padded, found = rnn.pad_packed_sequence(output)
        assert torch.equal(found, lengths)
        return padded, *tensors(state)

    moved = copy.deepcopy(module).to(device)
    x = torch.randn(5, 3, 4)
    same(run(x.to(device), moved), run(x, module), device)
    sequences = [torch.randn(n, 4) for n in (4, 2)]
    expected = module(rnn.pack_sequence(sequences))[0].data
    same(moved(rnn.pack_sequence([s.to(device) for s in sequences]))[0].data, expected, device)


def test_recurrent_states_and_dropout(device, device_module):
    torch.manual_seed(0)
    module = nn.LSTM(4, 5, num_layers=2, dropout=0.5)
    h, c = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    moved = copy.deepcopy(module).to(device)
    x = torch.randn(6, 3, 4)
    same(moved.eval()(x.to(device), (h.to(device), c.to(device))), module.eval()(x, (h, c)), device)
    moved.train()
    drawn = []
    for seed in (1, 1, 2):
        device_module.manual_seed(seed)
        drawn.append(moved(x.to(device))[0].cpu())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(("cell", "bias"), [(nn.LSTMCell, True), (nn.GRUCell, False), (nn.RNNCell, True)])
def test_recurrent_cells(device, cell, bias):
    torch.manual_seed(0)
    compare_layer(device, cell(4, 5, bias=bias), torch.randn(3, 4), second=True)
    compare_layer(device, cell(4, 5, bias=bias), torch.randn(4))


NORMS = {
    "batch_norm 1d": (nn.BatchNorm1d(4), (3, 4)),
    "batch_norm 2d": (nn.BatchNorm2d(4), (2, 4, 3, 5)),
    "batch_norm 3d": (nn.BatchNorm3d(4, momentum=None), (2, 4, 3, 2, 2)),
    "batch_norm without statistics": (nn.BatchNorm2d(4, track_running_stats=False, affine=False), (2, 4, 3, 5)),
    "group_norm": (nn.GroupNorm(2, 4), (2, 4, 3, 5)),
    "group_norm plain": (nn.GroupNorm(4, 4, affine=False), (2, 4, 3)),
    "instance_norm": (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (2, 4, 3, 5)),
    "layer_norm": (nn.LayerNorm((3, 5)), (2, 4, 3, 5)),
    "layer_norm without bias": (nn.LayerNorm(5, bias=False), (2, 4, 5)),
    "rms_norm": (nn.RMSNorm(5), (2, 4, 5)),
    "local response": (nn.LocalResponseNorm(2), (2, 4, 3, 5)),
}


@pytest.mark.parametrize(("layer", "shape"), NORMS.values(), ids=NORMS.keys())
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_normalisations(device, layer, shape, training):
    torch.manual_seed(0)
    compare_layer(device, copy.deepcopy(layer).train(training), torch.randn(shape), second=True)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"include_last_offset": True}], ids=str)
def test_embedding_bag(device, mode, options):
    torch.manual_seed(0)
    indices, weight = torch.tensor([1, 2, 4, 0, 2, 4]), torch.randn(5, 3)
    offsets = torch.tensor([0, 2, 2, 6] if options.get("include_last_offset") else [0, 2, 2])

    def bags(i, o, w, p=None):
        return F.embedding_bag(i, w, o, mode=mode, per_sample_weights=p, **options)

    for first, second in ((torch.int64, torch.int64), (torch.int32, torch.int64), (torch.int64, torch.int32)):
        compare(device, bags, indices.to(first), offsets.to(second), weight)
    compare(device, lambda i, w: F.embedding_bag(i, w, mode=mode), indices.view(2, 3), weight)
    if mode == "sum":
        compare(device, bags, indices, offsets, weight, torch.rand(6))


@pytest.mark.parametrize(("mode", "padding"), [("bilinear", "zeros"), ("nearest", "reflection"), ("bicubic", "border")])
def test_grid_sample(device, mode, padding):
    torch.manual_seed(0)
    x, grid = torch.randn(2, 3, 5, 4), torch.rand(2, 4, 3, 2) * 2.4 - 1.2
    compare(device, lambda x, g: F.grid_sample(x, g, mode, padding, align_corners=False), x, grid, tolerance=1e-4)
    if mode != "bicubic":
        x, grid = torch.randn(2, 3, 4, 4, 4), torch.rand(2, 2, 3, 2, 3) * 2 - 1
        compare(device, lambda x, g: F.grid_sample(x, g, mode, padding, align_corners=True), x, grid, tolerance=1e-4)


@pytest.mark.parametrize(
    ("reduction", "where"), [("none", "lists"), ("mean", "host tensors"), ("sum", "device tensors")]
)
def test_ctc_loss(device, reduction, where):
    torch.manual_seed(0)
    x, targets = torch.randn(6, 2, 5), torch.tensor([[1, 2, 3], [2, 1, 0]])

    def loss(x, targets):
        lengths = [torch.tensor([6, 5]), torch.tensor([3, 2])]
        if where == "device tensors":
            lengths = [t.to(x.device) for t in lengths]
        elif where == "lists":
            lengths = [t.tolist() for t in lengths]
        return F.ctc_loss(x.log_softmax(2), targets, *lengths, reduction=reduction, zero_infinity=True)

    compare(device, loss, x, targets)


# Each takes x, y and the reduction.
LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "kl_div": lambda x, y, **r: F.kl_div(x.log_softmax(1), y.softmax(1), **r),
    "bce": lambda x, y, **r: F.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid(), **r),
    "bce_with_logits": lambda x, y, **r: F.binary_cross_entropy_with_logits(x, y.detach().sigmoid(), **r),
    "soft_margin": lambda x, y, **r: F.soft_margin_loss(x, y.detach().sign(), **r),
    "cosine": lambda x, y, **r: F.cosine_embedding_loss(x, y, x.new_ones(3), **r),
    "triplet": lambda x, y, **r: F.triplet_margin_loss(x, y, x.flip(0), **r),
    "poisson": lambda x, y, **r: F.poisson_nll_loss(x, y.detach().exp(), **r),
    "gaussian": lambda x, y, **r: F.gaussian_nll_loss(x, y, y.exp(), **r),
    "cross_entropy": lambda x, y, **r: F.cross_entropy(x, y.detach().argmax(1), label_smoothing=0.1, **r),
    "cross_entropy of probabilities": lambda x, y, **r: F.cross_entropy(x, y.softmax(1), **r),
    "nll": lambda x, y, **r: F.nll_loss(x.log_softmax(1), y.detach().argmax(1), y.detach()[0].exp(), **r),
    "multi_margin": lambda x, y, **r: F.multi_margin_loss(x, y.detach().argmax(1), **r),
    "multilabel": lambda x, y, **r: F.multilabel_soft_margin_loss(x, (y.detach() > 0).float(), **r),
}


@pytest.mark.filterwarnings("error:An output with one or more elements was resized")
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_losses_without_a_warning_of_resized_outputs(device, loss, reduction):
    torch.manual_seed(0)
    compare(device, lambda x, y: loss(x, y, reduction=reduction), torch.randn(3, 4), torch.randn(3, 4))
