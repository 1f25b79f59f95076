"""Modules that move to the device and back keep their parameters' identity, as on CUDA."""

import copy

import pytest
import torch
from torch import nn


class Tied(nn.Module):
    """An embedding whose weight is the output layer's."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(6, 3), nn.Linear(3, 6)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def test_parameters_stay_the_same_objects(device):
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    parameters = list(module.parameters())
    moves = [lambda: module.to(device), module.cpu, lambda: module.to(device), module.cpu, getattr(module, device.type)]
    for move in moves:
        move()
        assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
        kind = "cpu" if move == module.cpu else device.type
        assert {t.device.type for t in (*module.parameters(), *module.buffers())} == {kind}
    module.double()
    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    assert {p.dtype for p in parameters} == {torch.float64}


def test_tied_weights_stay_tied(device):
    torch.manual_seed(0)
    model = Tied()
    tokens = torch.tensor([1, 4, 1])
    model(tokens).logsumexp(-1).sum().backward()
    expected = model.embedding.weight.grad.clone()
    model.zero_grad()
    model.to(device)
    assert model.head.weight is model.embedding.weight
    model(tokens.to(device)).logsumexp(-1).sum().backward()
    torch.testing.assert_close(model.embedding.weight.grad.cpu(), expected)
    assert len(list(model.parameters())) == 2
    clone = copy.deepcopy(model)
    assert clone.head.weight is clone.embedding.weight
    assert clone.head.weight is not model.head.weight


def test_an_optimizer_made_before_the_move_steps_the_moved_parameters(device):
    module = nn.Linear(2, 1, bias=False)
    module.weight.data.fill_(1.0)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    module.to(device)
    module(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    assert module.weight.tolist() == [[0.5, 0.5]]


def test_gradients_move_with_their_parameters(device):
    module = nn.Linear(2, 1)
    module(torch.ones(1, 2)).sum().backward()
    module.to(device)
    assert module.weight.grad.device.type == device.type
    assert module.weight.grad.tolist() == [[1, 1]]
    module.cpu()
    assert module.weight.grad.device.type == "cpu"


def test_setting_data_across_devices(device):
    x = torch.ones(2, requires_grad=True)
    x.data = torch.arange(3.0, device=device)
    assert (x.device.type, x.tolist(), x.requires_grad) == (device.type, [0, 1, 2], True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [0, 2, 4]
    x.grad = None
    x.data = torch.zeros(1, dtype=torch.float32)
    assert x.device.type == "cpu"
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = torch.eye(3, device=device).to_sparse()


def test_other_ways_to_move_a_module(device):
    module = nn.Linear(2, 3)
    moved = copy.deepcopy(module).to(device, torch.bfloat16, non_blocking=True)
    assert {(p.device.type, p.dtype) for p in moved.parameters()} == {(device.type, torch.bfloat16)}
    module.to(device)
    on_meta = nn.Linear(2, 3, device="meta").to_empty(device=device)
    on_meta.load_state_dict(module.state_dict())
    assert torch.equal(on_meta.weight.cpu(), module.weight.cpu())
    on_meta = nn.Linear(2, 3, device="meta")
    on_meta.load_state_dict(module.state_dict(), assign=True)
    assert on_meta.weight.device.type == device.type
    flat = torch.nn.utils.parameters_to_vector(module.parameters())
    torch.nn.utils.vector_to_parameters(flat * 2, module.parameters())
    assert torch.equal(module.weight.flatten().cpu(), flat[:6].cpu() * 2)
    try:
        torch.__future__.set_swap_module_params_on_conversion(True)
        assert nn.Linear(1, 1).to(device).weight.device.type == device.type
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
