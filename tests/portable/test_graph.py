"""The demo's GPT, with dropout, as a graph of compiled kernels."""

import pytest
import torch
import torch.nn.functional as F

from torch_backplane import fallback

pytestmark = pytest.mark.requires("graph")


def with_dropout(gpt, characters):
    """The model, with dropout in front of its blocks and of its head."""

    class Dropped(gpt.GPT):
        def forward(self, tokens):
            positions = torch.arange(tokens.shape[1], device=tokens.device)
            x = F.dropout(self.character(tokens) + self.position(positions), 0.1, self.training)
            return self.head(F.dropout(self.norm(self.blocks(x)), 0.1, self.training))

    return Dropped(characters, width=32, layers=2, context=16)


class Training:
    def __init__(self, gpt, text, device, first):
        self.model = with_dropout(gpt, len(text.characters)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.x, self.y = (part.to(device) for part in first)

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(self.model(self.x).flatten(0, 1), self.y.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def take(self, batch):
        self.x.copy_(batch[0])
        self.y.copy_(batch[1])


@pytest.mark.timeout(200)
@pytest.mark.usefixtures("deterministic")
def test_H01_a_gpt_with_dropout_is_eagers_over_a_hundred_replays(device, device_module, demo):
    _, gpt, _ = demo
    text = gpt.Text("the quick brown fox jumps over the lazy dog. " * 20)
    batches = list(text.batches(100, 4, 16))
    results = []
    for graphed in (False, True):
        training = Training(gpt, text, device, batches[0])
        side = device_module.Stream()
        side.wait_stream(device_module.current_stream())
        with side:
            for _ in range(2):
                training.step()
        device_module.current_stream().wait_stream(side)
        graph = device_module.CUDAGraph() if graphed else None
        with fallback.budget(calls=0):
            if graph is not None:
                with device_module.graph(graph, stream=side):
                    loss = training.step()
            torch.manual_seed(7)
            losses = []
            for batch in batches:
                training.take(batch)
                if graph is None:
                    loss = training.step()
                else:
                    graph.replay()
                losses.append(loss.clone())
            results.append((torch.stack(losses).cpu(), [p.detach().cpu() for p in training.model.parameters()]))
    (losses, parameters), (replayed, others) = results
    assert torch.equal(losses, replayed)
    assert losses[-10:].mean() < losses[:10].mean()
    for one, other in zip(parameters, others, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD", "Adadelta", "RMSprop", "Rprop"])
def test_H03_a_step_that_the_device_counts_is_eagers(device, device_module, name):
    gradients = torch.randn(6, 4, device=device)
    results = []
    for captures in (False, True):
        parameter = torch.ones(4, device=device, requires_grad=True)
        parameter.grad = torch.zeros_like(parameter)
        optimizer = getattr(torch.optim, name)([parameter], capturable=True)
        graph = device_module.CUDAGraph()
        for i, gradient in enumerate(gradients):
            parameter.grad.copy_(gradient)
            if not captures or i < 2:
                optimizer.step()
                continue
            if i == 2:
                with device_module.graph(graph):
                    optimizer.step()
            graph.replay()
        results.append(parameter.detach().cpu())
    torch.testing.assert_close(results[1], results[0])


def fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)


def flash(q, k, v):
    return torch.ops.aten._flash_attention_forward(q, k, v, None, None, 6, 6, 0.5, False, False)[0]


def efficient(q, k, v):
    return torch.ops.aten._efficient_attention_forward(q, k, v, None, None, None, 6, 6, 0.5, 0, True)[0]


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("attention", [fused, flash, efficient])
def test_H02_dropout_within_attention_is_eagers_forward_and_backward(device, device_module, attention):
    given = [torch.randn(2, 6, 6, 8, device=device, requires_grad=True) for _ in range(3)]

    def step():
        made = attention(*given) + F.dropout(given[0], 0.5)
        return made.detach(), *torch.autograd.grad(made.square().sum(), given)

    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        results = step()
    torch.manual_seed(3)
    expected = [[one.cpu() for one in step()] for _ in range(3)]
    torch.manual_seed(3)
    for wanted in expected:
        graph.replay()
        assert all(torch.equal(one.cpu(), other) for one, other in zip(results, wanted, strict=True))
    assert not torch.equal(expected[0][0], expected[1][0])


def test_H02_the_backward_of_dropout_within_attention_in_a_graph_of_its_own(device, device_module):
    """After a forward pass without a graph, and as make_graphed_callables has it."""
    q, k, v = (torch.randn(2, 2, 6, 8, device=device, requires_grad=True) for _ in range(3))
    stream = device_module.Stream()
    stream.wait_stream(device_module.current_stream())
    with stream:
        made = fused(q, k, v)
        expected, one = torch.autograd.grad(made.sum(), v, retain_graph=True)[0], torch.ones_like(made)
    device_module.current_stream().wait_stream(stream)
    graph = device_module.CUDAGraph()
    with device_module.graph(graph, stream=stream):
        found = torch.autograd.grad(made, v, one)[0]
    for _ in range(2):
        graph.replay()
        torch.testing.assert_close(found, expected)
    graphed = device_module.make_graphed_callables(fused, (q, k, v))
    drawn = []
    for _ in range(3):
        made = graphed(q, k, v)
        drawn.append(made.detach().clone())
        # A linear function of the values: their gradient has the mask of the forward pass.
        torch.testing.assert_close((torch.autograd.grad(made.sum(), v)[0] * v).sum(), drawn[-1].sum())
    assert not torch.equal(drawn[0], drawn[1])
