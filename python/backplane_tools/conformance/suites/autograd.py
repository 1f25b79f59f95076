"""Gradients on the device: against the CPU's, against finite differences, and the engine's promises about streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from backplane_tools.conformance.checks import FunctionSuite, close, equal, expect, in_threads, raises


def model() -> torch.nn.Module:
    """A small network, the same for each call under one seed."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 4 * 4, 10),
    )


def twins(device: torch.device) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A network on the CPU, and its copy on the device."""
    host, there = model(), model()
    there.load_state_dict(host.state_dict())
    return host, there.to(device)


def leaf(device: torch.device, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A float64 leaf on the CPU, and one with its values on the device."""
    x = torch.randn(*shape, dtype=torch.float64)
    return x.clone().requires_grad_(), x.to(device).requires_grad_()


def grad(x: torch.Tensor) -> torch.Tensor:
    """A leaf's gradient, which must be there."""
    if x.grad is None:
        raise AssertionError("no gradient arrived")
    return x.grad


class AutogradSuite(FunctionSuite):
    """The engine's behaviour; the derivative of each operator is the suite ``ops``."""

    name = "autograd"

    def backward__network(self, device: torch.device) -> None:
        host, there = twins(device)
        x, target = torch.randn(5, 3, 8, 8), torch.randint(10, (5,))
        F.cross_entropy(host(x), target).backward()
        F.cross_entropy(there(x.to(device)), target.to(device)).backward()
        for (name, p), q in zip(host.named_parameters(), there.parameters(), strict=True):
            equal(grad(q).device, device, f"the device of {name}'s gradient")
            close(grad(q), grad(p), f"the gradient of {name}")

    def backward__accumulates(self, device: torch.device) -> None:
        x = torch.ones(4, device=device, requires_grad=True)
        (x * 2).sum().backward()
        (x * 3).sum().backward()
        close(grad(x), torch.full((4,), 5.0))

    def backward__broadcast(self, device: torch.device) -> None:
        a, x = leaf(device, 3, 1)
        b, y = leaf(device, 4)
        (a * b).sin().sum().backward()
        (x * y).sin().sum().backward()
        close(grad(x), grad(a))
        close(grad(y), grad(b))

    def backward__views(self, device: torch.device) -> None:
        a, x = leaf(device, 4, 6)
        for t in (a, x):
            view = t.clone()
            view.t()[1:3].mul_(2)
            view[:, ::2].exp().sum().backward()
        close(grad(x), grad(a))

    def backward__through_copies(self, device: torch.device) -> None:
        a, _ = leaf(device, 5)
        (a.to(device).exp().cpu() * 2).sum().backward()
        equal(grad(a).device.type, "cpu", "the device of a CPU leaf's gradient")
        close(grad(a), 2 * a.detach().exp())

    def backward__mixed_dtypes(self, device: torch.device) -> None:
        x = torch.ones(4, device=device, requires_grad=True)
        (x.double() * x.half().double()).sum().backward()
        equal(grad(x).dtype, torch.float32, "the gradient's dtype")
        close(grad(x), torch.full((4,), 2.0))

    def backward__on_a_stream(self, device: torch.device) -> None:
        stream = self.module.Stream(device)
        x = torch.ones(1 << 16, device=device, requires_grad=True)
        stream.wait_stream(self.module.current_stream(device))
        with self.module.stream(stream):
            y = x
            for _ in range(10):
                y = y * 1.5
            loss = y.sum()
        self.module.current_stream(device).wait_stream(stream)
        loss.backward()  # runs on the forward's stream; its leaves are safe on the caller's
        close(grad(x), torch.full((1 << 16,), 1.5**10))

    def backward__in_threads(self, device: torch.device) -> None:
        def work(i: int) -> torch.Tensor:
            x = torch.full((1000,), float(i), device=device, requires_grad=True)
            (x**2).sum().backward()
            return grad(x).cpu()

        for i, result in enumerate(in_threads(work, 6)):
            close(result, torch.full((1000,), 2.0 * i), f"thread {i}")

    def backward__twice_is_refused(self, device: torch.device) -> None:
        x = torch.ones(4, device=device, requires_grad=True)
        loss = x.exp().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with raises(RuntimeError, "second time", "a third backward"):
            loss.backward()

    def backward__changed_value_is_refused(self, device: torch.device) -> None:
        x = torch.ones(4, device=device, requires_grad=True)
        y = x.exp()
        y.add_(1)
        with raises(RuntimeError, "modified by an inplace operation", "backward over a changed value"):
            y.sum().backward()

    def backward__anomaly(self, device: torch.device) -> None:
        x = torch.zeros(3, device=device, requires_grad=True)
        with (
            raises(RuntimeError, "returned nan values", "backward of 0/0"),
            torch.autograd.detect_anomaly(check_nan=True),
        ):
            (x.sqrt() * 0).sum().backward()

    def hooks(self, device: torch.device) -> None:
        x = torch.ones(4, device=device, requires_grad=True)
        seen: list[torch.device] = []
        x.register_hook(lambda g: g * 10)
        x.register_post_accumulate_grad_hook(lambda p: seen.append(grad(p).device))
        (x * 2).sum().backward()
        close(grad(x), torch.full((4,), 20.0))
        equal(seen, [device], "the devices that the post-accumulate hook saw")

    def saved_tensors__on_the_cpu(self, device: torch.device) -> None:
        a, x = leaf(device, 6)
        a.exp().sin().sum().backward()
        with torch.autograd.graph.save_on_cpu(pin_memory=True, device_type=device.type):
            loss = x.exp().sin().sum()
        loss.backward()
        close(grad(x), grad(a))

    def checkpoint(self, device: torch.device) -> None:
        x = torch.ones(64, device=device, requires_grad=True)
        kept: list[torch.Tensor] = []

        def block(t: torch.Tensor) -> torch.Tensor:
            kept.append(F.dropout(t, 0.5))  # the recomputation draws the same mask
            return kept[-1].exp()

        checkpoint(block, x, use_reentrant=False).sum().backward()
        equal(len(kept), 2, "forward runs of the block")
        close(kept[1], kept[0].detach().cpu(), "the mask of the recomputation")
        close(grad(x), (kept[0] * kept[0].exp()).detach().cpu(), "the gradient")

    def function(self, device: torch.device) -> None:
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
                (x,) = ctx.saved_tensors
                equal(x.device, device, "the device of a saved tensor")
                return grads[0] * 3 * x**2

        a, x = leaf(device, 5)
        Cube.apply(x).sum().backward()
        close(grad(x), 3 * a.detach() ** 2)

    def grad__higher_order(self, device: torch.device) -> None:
        def third(x: torch.Tensor) -> torch.Tensor:
            y = (x.sin() * x).sum()
            for _ in range(3):
                (g,) = torch.autograd.grad(y, x, create_graph=True)
                y = g.sum()
            return g

        a, x = leaf(device, 7)
        close(third(x).detach(), third(a).detach())

    def grad__modes(self, device: torch.device) -> None:
        x = torch.ones(3, device=device, requires_grad=True)
        with torch.no_grad():
            expect(not (x * 2).requires_grad, "requires_grad under no_grad")
        with torch.inference_mode():
            y = x * 2
        expect(y.is_inference(), "is_inference() is False for a tensor of inference mode")
        with raises(RuntimeError, "nference tensor", "an in-place change of an inference tensor"):
            y.add_(1)
        expect((x.detach() * 2).grad_fn is None, "detach() kept the graph")

    def gradcheck(self, device: torch.device) -> None:
        functions: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
            "linear": (F.linear, ((3, 4), (5, 4), (5,))),
            "conv2d": (F.conv2d, ((1, 2, 5, 5), (3, 2, 3, 3), (3,))),
            "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), ((3, 4), (4,), (4,))),
            "attention": (F.scaled_dot_product_attention, ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4))),
            "logsumexp": (lambda x: x.logsumexp(1), ((3, 4),)),
            "index": (lambda x: x[[0, 2, 0], 1:], ((3, 4),)),
        }
        for name, (function, shapes) in functions.items():
            inputs = [leaf(device, *shape)[1] for shape in shapes]
            expect(torch.autograd.gradcheck(function, inputs), f"gradcheck of {name}")

    def gradgradcheck(self, device: torch.device) -> None:
        for name, function in {
            "tanh": torch.tanh,
            "matmul": lambda x: x @ x.t(),
            "softmax": lambda x: x.softmax(1),
        }.items():
            expect(torch.autograd.gradgradcheck(function, [leaf(device, 3, 3)[1]]), f"gradgradcheck of {name}")

    def forward_mode(self, device: torch.device) -> None:
        a, x = leaf(device, 5)
        tangent = torch.randn(5, dtype=torch.float64)
        results = []
        for t, v in ((a, tangent), (x, tangent.to(device))):
            with torch.autograd.forward_ad.dual_level():
                dual = torch.autograd.forward_ad.make_dual(t.detach(), v)
                results.append(torch.autograd.forward_ad.unpack_dual(dual.sin() * dual).tangent)
        close(results[1], results[0])

    def func__transforms(self, device: torch.device) -> None:
        def f(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return (x @ w).tanh().sum()

        w, x = torch.randn(4, 3, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
        transforms: dict[str, Callable[..., Any]] = {
            "grad": torch.func.grad(f),
            "vmap of grad": torch.func.vmap(torch.func.grad(f), in_dims=(None, 0)),
            "jacrev": torch.func.jacrev(f),
            "jacfwd": torch.func.jacfwd(f),
            "hessian": torch.func.hessian(f),
        }
        for name, transform in transforms.items():
            close(transform(w.to(device), x.to(device)), transform(w, x), name)

    def training(self, device: torch.device) -> None:
        host, there = twins(device)
        x, target = torch.randn(16, 3, 8, 8), torch.randint(10, (16,))
        losses: dict[str, list[float]] = {}
        for name, net, inputs, labels in (("cpu", host, x, target), ("device", there, x.to(device), target.to(device))):
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
            for _ in range(10):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(inputs), labels)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                losses.setdefault(name, []).append(loss.item())
        close(torch.tensor(losses["device"]), torch.tensor(losses["cpu"]), "ten losses")

    def amp__training(self, device: torch.device) -> None:
        net = model().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler(device.type, init_scale=2.0**4)
        x, target = torch.randn(8, 3, 8, 8, device=device), torch.randint(10, (8,), device=device)
        losses = []
        for _ in range(8):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        expect(losses[-1] < losses[0], f"the loss did not fall: {losses}")
        before = [p.detach().clone() for p in net.parameters()]
        optimizer.zero_grad()
        scaler.scale(net(x).sum() * float("inf")).backward()
        scaler.step(optimizer)
        scale = scaler.get_scale()
        scaler.update()
        expect(
            all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True)), "a step with inf was taken"
        )
        expect(scaler.get_scale() < scale, "the scale did not fall after an inf")
