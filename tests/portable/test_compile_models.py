"""torch.compile of models that people train: eager's values, on the device and on the CPU, in as many graphs."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from portable import models
from portable.compare import each
from portable.models import assert_near, images, loss_of, of_classes, of_tokens, tokens

pytestmark = pytest.mark.usefixtures("each_compiles")


def padded(numbers):
    """The last place of the first row is padding."""
    numbers[0, -1] = 0
    return numbers


def digits(demo):
    return of_classes(demo[0].network(), 8, 1)


def characters(demo):
    return of_tokens(demo[1].GPT(50, width=32, layers=2, context=16), 50)


# What makes a model, its inputs and its targets.
MODELS = {
    "demo's CNN": digits,
    "demo's GPT": characters,
    "resnet": lambda _: of_classes(models.ResNet()),
    "resnet-18": lambda _: of_classes(models.ResNet(width=4, eighteen=True)),
    "vit": lambda _: of_classes(models.ViT(image=32, patch=8)),
    "llama": lambda _: of_tokens(models.Llama(50), 50),
    "unet": lambda _: (models.UNet(), images(16), images(16).flip(0)),
    "bert": lambda _: (models.Bert(50), padded(tokens(50)), tokens(50)),
}


def breaks():
    """Why Dynamo broke graphs, and how often, since the last reset."""
    return dict(counters["graph_break"])


def state(model):
    """Gradients, and what the forward changed, on the CPU."""
    found = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return found | {name: buffer.cpu() for name, buffer in model.named_buffers()}


def check(device, twin, inputs, targets, *, tolerance=1e-4, half=None, seeded=False, **settings):
    """Loss and state of a step: compiled on the device beside eager there, and beside the CPU.

    ``seeded``: the same random numbers are eager's alone, not the CPU's.
    """
    model = copy.deepcopy(twin).to(device)
    seen = copy.deepcopy(model)

    def step(model, call=None):
        torch.manual_seed(5)
        return loss_of(model, inputs, targets, call, half), state(model)

    expected, expected_state = step(seen)
    counters.clear()
    got, got_state = step(model, torch.compile(model, **settings))
    ours = breaks()
    assert counters["stats"]["unique_graphs"] >= 1
    assert got == pytest.approx(expected, rel=tolerance)
    assert_near(got_state, expected_state, tolerance)

    torch._dynamo.reset()
    counters.clear()
    got, got_state = step(twin, torch.compile(twin, backend="aot_eager", **settings))
    assert ours == breaks()
    if not seeded:
        assert got == pytest.approx(expected, rel=tolerance)
        assert_near(got_state, expected_state, tolerance)
    return ours


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", each(MODELS, "demo's GPT"))
def test_F16_a_models_step_is_eagers(device, demo, name):
    torch.manual_seed(0)
    model, inputs, targets = MODELS[name](demo)
    assert check(device, model, inputs, targets, seeded=name == "bert") == {}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_F16_a_llama_of_any_length_is_compiled_once(device):
    torch.manual_seed(0)
    twin = models.Llama(50)
    model = copy.deepcopy(twin).to(device)
    counters.clear()
    call = torch.compile(model, dynamic=True)
    for length in (7, 12, 31):
        numbers = tokens(50, length)
        inputs, targets = numbers[:, :-1], numbers[:, 1:]
        got, got_state = loss_of(model, inputs, targets, call), state(model)
        assert got == pytest.approx(loss_of(twin, inputs, targets), rel=1e-4)
        assert_near(got_state, state(twin), 1e-4)
    assert counters["stats"]["unique_graphs"] == (1 if torch.__version__ >= (2, 13) else 2)
    assert breaks() == {}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_F16_a_llama_generates_with_a_cache(device):
    """One graph for the prompt, and one for all tokens after it."""
    torch.manual_seed(0)
    twin = models.Llama(50)
    model = copy.deepcopy(twin).to(device)
    prompt = tokens(50, 5)
    expected = twin.generate(prompt, 8, models.greedy)
    counters.clear()
    model.compile(dynamic=True)
    got = model.generate(prompt.to(device), 8, models.greedy)
    assert got.tolist() == expected.tolist()
    assert breaks() == {}
    assert counters["stats"]["unique_graphs"] <= 3


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2)),
    "adam, as it is": torch.optim.Adam,  # 0.001 and 1 - 0.999 are one float32
    "adamw, a decay of a tenth": lambda p: torch.optim.AdamW(p, weight_decay=0.1),
    "adamw, one by one": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
}


@pytest.mark.long_after_first
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_F16_an_optimizers_step(device, name):
    def parameters(where):
        torch.manual_seed(0)
        made = [torch.randn(shape) for shape in ((7, 5), (5,), (3, 2, 2))]
        return [nn.Parameter(one.to(where)) for one in made]

    def train(mine, step):
        for i in range(3):
            for p in mine:
                p.grad = (p.detach() * (i + 1)).cos()
            step()
        return [p.detach().cpu() for p in mine]

    mine = parameters(device)
    optimizer = OPTIMIZERS[name](mine)
    counters.clear()
    got = train(mine, torch.compile(optimizer.step))
    ours = breaks()
    assert counters["stats"]["unique_graphs"] >= 1
    theirs = parameters("cpu")
    expected = train(theirs, OPTIMIZERS[name](theirs).step)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    torch._dynamo.reset()
    counters.clear()
    theirs = parameters("cpu")
    train(theirs, torch.compile(OPTIMIZERS[name](theirs).step, backend="eager"))
    assert ours == breaks()


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def rows(seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 16, generator=generator), torch.randint(0, 4, (8,), generator=generator)


@pytest.mark.long_after_first
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["bfloat16", "float16", "llama"])
def test_F16_autocast(device, name):
    """Of the device and of the CPU compiled alike: Inductor rounds less often than eager does."""
    torch.manual_seed(0)
    case = of_tokens(models.Llama(50), 50) if name == "llama" else (perceptron(), *rows())
    half = torch.float16 if name == "float16" else torch.bfloat16
    check(device, *case, half=half, tolerance=5e-2 if name == "llama" else 2e-2)


@pytest.mark.long
def test_F16_a_grad_scaler(device):
    """Scaled steps, and one whose gradients overflow: it is left out and the scale halves."""

    def train(compile_):
        model = perceptron().to(device)
        call = torch.compile(model) if compile_ else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
        x, y = (one.to(device) for one in rows())
        losses = []
        for i in range(5):
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.float16):
                loss = F.cross_entropy(call(x * (1e30 if i == 2 else 1.0)), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses, scaler.get_scale()

    (expected, scale), (got, compiled_scale) = train(False), train(True)
    assert compiled_scale == scale == 512.0
    assert got == pytest.approx(expected, rel=2e-2, nan_ok=True)


class Checkpointed(nn.Module):
    """Two parts whose values the backward computes again, with dropout in them."""

    def __init__(self, reentrant, dropout):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(dropout))
        self.second = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.Dropout(dropout))
        self.head = nn.Linear(32, 4)
        self.reentrant = reentrant

    def forward(self, x):
        for part in (self.first, self.second):
            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return self.head(x)


@pytest.mark.long_after_first
@pytest.mark.parametrize("reentrant", [False, True])
def test_F16_activation_checkpoints(device, reentrant):
    torch.manual_seed(0)
    x, y = rows()
    check(device, Checkpointed(reentrant, 0.0), x.requires_grad_(), y)
    torch._dynamo.reset()
    # The second forward has the first one's random numbers: else the gradients would be of other units.
    model = Checkpointed(reentrant, 0.5).to(device)
    x = x.detach().to(device).requires_grad_()
    with torch.no_grad():
        model.first[0].weight.copy_(torch.eye(32, 16))
        model.first[0].bias.fill_(3.0)
    y = torch.compile(lambda x: checkpoint(model.first, x, use_reentrant=reentrant))(x)
    y.sum().backward()
    kept = y.detach()[:, 16:] != 0  # the bias alone, by GELU's slope of nearly 1 there
    slope = 2 * torch.autograd.functional.vjp(F.gelu, torch.full((1,), 3.0))[1].item()
    torch.testing.assert_close(
        model.first[0].bias.grad[16:].cpu(), slope * kept.sum(0).cpu().float(), rtol=1e-4, atol=1e-4
    )


def test_F16_gradients_of_several_batches_add_up(device):
    def accumulated(where, compile_):
        model = perceptron().to(where)
        call = torch.compile(model) if compile_ else model
        for seed in range(3):
            x, y = (one.to(where) for one in rows(seed))
            (F.cross_entropy(call(x), y) / 3).backward()
        return state(model)

    counters.clear()
    got = accumulated(device, True)
    assert breaks() == {}
    assert_near(got, accumulated(device, False), 1e-4)
    assert_near(got, accumulated("cpu", False), 1e-4)
