"""Trains a small classifier whose normalization and loss are kernels of Triton, forward and backward.

    pip install triton==3.7.1
    python examples/triton/train.py
    python examples/triton/train.py --plain
    python examples/triton/train.py --plain --device cpu

The program names no device: it takes the machine's accelerator, whichever backend is installed. ``--plain`` computes
the same by torch's own operators, on any device.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    raise SystemExit("this program requires Triton: torch-backplane doctor names the release to install") from None

CLASSES, WIDTH, EPSILON = 100, 96, 1e-6


@triton.jit
def normalize(x, weight, out, inverse, width, eps, BLOCK: tl.constexpr):
    """A row of RMSNorm; keeps 1 / rms for the backward."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    mask = column < width
    value = tl.load(x + row * width + column, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    tl.store(inverse + row, scale)
    tl.store(out + row * width + column, value * scale * tl.load(weight + column, mask=mask), mask=mask)


@triton.jit
def normalize_backward(x, weight, inverse, dout, dx, dweight, width, BLOCK: tl.constexpr):
    """The gradients of a row; rows add theirs to that of the weight."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    mask = column < width
    scale = tl.load(inverse + row)
    value = tl.load(x + row * width + column, mask=mask, other=0.0) * scale
    gradient = tl.load(dout + row * width + column, mask=mask, other=0.0)
    tl.atomic_add(dweight + column, gradient * value, mask=mask)
    gradient *= tl.load(weight + column, mask=mask, other=0.0)
    change = scale * (gradient - value * tl.sum(gradient * value, 0) / width)
    tl.store(dx + row * width + column, change, mask=mask)


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (32, 128)], key=["classes"])
@triton.jit
def cross_entropy(logits, target, loss, dlogits, classes, rows, BLOCK: tl.constexpr):
    """The loss of a row, and its gradient, in two passes over blocks of logits."""
    row = tl.program_id(0)
    highest, total = -float("inf"), 0.0
    for start in range(0, classes, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(logits + row * classes + column, mask=column < classes, other=-float("inf"))
        higher = tl.maximum(highest, tl.max(value, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(value - higher), 0)
        highest = higher
    wanted = tl.load(target + row)
    tl.store(loss + row, highest + tl.log(total) - tl.load(logits + row * classes + wanted))
    for start in range(0, classes, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < classes
        value = tl.load(logits + row * classes + column, mask=mask, other=-float("inf"))
        gradient = tl.exp(value - highest) / total - tl.where(column == wanted, 1.0, 0.0)
        tl.store(dlogits + row * classes + column, gradient / rows, mask=mask)


class Normalize(torch.autograd.Function):
    """RMSNorm over the last dimension of a contiguous matrix."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """One program a row."""
        out, inverse = torch.empty_like(x), x.new_empty(len(x))
        normalize[(len(x),)](x, weight, out, inverse, x.shape[1], EPSILON, BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(x, weight, inverse)
        return out

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of the matrix and of the weight."""
        x, weight, inverse = ctx.saved_tensors
        dx, dweight = torch.empty_like(x), torch.zeros_like(weight)
        block = triton.next_power_of_2(x.shape[1])
        normalize_backward[(len(x),)](x, weight, inverse, dout.contiguous(), dx, dweight, x.shape[1], BLOCK=block)
        return dx, dweight


class CrossEntropy(torch.autograd.Function):
    """The mean loss of the rows; the forward computes the gradient too."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """One program a row."""
        rows, classes = logits.shape
        loss, dlogits = logits.new_empty(rows), torch.empty_like(logits)
        cross_entropy[(rows,)](logits, target, loss, dlogits, classes, rows)
        ctx.save_for_backward(dlogits)
        return loss.mean()

    @staticmethod
    def backward(ctx: Any, dloss: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Scaled; the target has none."""
        (dlogits,) = ctx.saved_tensors
        return dlogits * dloss, None


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--plain", action="store_true", help="compute by torch's operators, without Triton's kernels")
    parser.add_argument("--device", help="type of device; default: the accelerator")
    return parser.parse_args()


def main() -> None:
    """Train; the labels are those of a fixed linear teacher."""
    chosen = options()
    device = torch.device(chosen.device or str(torch.accelerator.current_accelerator()))
    torch.manual_seed(0)
    teacher = torch.randn(WIDTH, CLASSES)
    weights = [torch.ones(WIDTH), torch.randn(WIDTH, CLASSES) / WIDTH**0.5]
    weight, head = (one.to(device).requires_grad_() for one in weights)
    optimizer = torch.optim.AdamW([weight, head], lr=3e-2)
    for step in range(1, chosen.steps + 1):
        x = torch.randn(256, WIDTH)
        target = (x @ teacher).argmax(1).to(device)
        x = x.to(device)
        if chosen.plain:
            loss = F.cross_entropy(F.rms_norm(x, (WIDTH,), weight, EPSILON) @ head, target)
        else:
            loss = CrossEntropy.apply(Normalize.apply(x, weight) @ head, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 20 == 0 or step == chosen.steps:
            print(f"step {step} of {chosen.steps}: loss {loss.item():.4f}")
    way = "trained by torch's operators" if chosen.plain else f"trained by kernels of Triton {triton.__version__}"
    print(f"{way} on {weight.device}")


if __name__ == "__main__":
    main()
