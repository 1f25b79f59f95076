"""Trains the demo's CNN on handwritten digits, with mixed precision if asked, and names unseen ones.

    python examples/cnn/train.py
    python examples/cnn/train.py --half bfloat16
    python examples/cnn/train.py --device cpu

The program names no device: it takes the machine's accelerator, whichever backend is installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
import cnn


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--half", choices=["float16", "bfloat16"], help="compute in it, by autocast; default: float32")
    parser.add_argument("--device", help="type of device; default: the accelerator")
    return parser.parse_args()


def main() -> None:
    """Train, then test."""
    chosen = options()
    device = torch.device(chosen.device or str(torch.accelerator.current_accelerator()))
    half = getattr(torch, chosen.half or "float32")
    train_x, train_y, test_x, test_y = cnn.digits()
    model = cnn.network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler(device.type, enabled=half is torch.float16)
    for step, (x, y) in enumerate(cnn.batches(train_x, train_y, chosen.steps), 1):
        with torch.autocast(device.type, half, enabled=bool(chosen.half)):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if step == 1 or step % 50 == 0 or step == chosen.steps:
            print(f"step {step} of {chosen.steps}: loss {loss.item():.4f}")
    right = cnn.accuracy(model, test_x.to(device), test_y.to(device))
    print(f"{right:.1%} of {len(test_x)} unseen digits are named right on {next(model.parameters()).device}")


if __name__ == "__main__":
    main()
