"""Trains the demo's GPT by FSDP2, on as many devices as torchrun starts ranks.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # a store for each restart
    torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/distributed/train.py --checkpoints checkpoints

Every few steps the ranks save their parts of the model and of the optimizer. A run that finds checkpoints goes on from
the last that is complete, with as many ranks as before or others: by hand, or by torchrun, which starts all ranks anew
when one has failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
from gpt import GPT, repository_text


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="windows of text a step, of all ranks together")
    parser.add_argument("--checkpoints", type=Path, help="folder of the checkpoints; none: nothing is saved")
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--device", help="type of device; default: the accelerator")
    return parser.parse_args()


def say(text: str) -> None:
    """Progress, on rank 0 alone."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def own_device(kind: str | None) -> torch.device:
    """This rank's, made current."""
    accelerator = torch.accelerator.current_accelerator()
    device = torch.device(kind or (accelerator.type if accelerator else "cpu"))
    if device.type == "cpu":
        return device
    index = int(os.environ["LOCAL_RANK"]) % torch.get_device_module(device).device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(device.type, index)


class Training:
    """A model and its optimizer, in parts on all ranks, and how far they are."""

    def __init__(self, characters: int, device: torch.device) -> None:
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        self.model = GPT(characters).to(device)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.step = 0

    def learn(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One step; the loss of this rank's part."""
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return loss.detach()

    def state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": torch.tensor(self.step)}

    def save(self, folder: Path) -> None:
        dcp.save(self.state(), checkpoint_id=str(folder / f"step-{self.step:06}"))

    def resume(self, folder: Path) -> None:
        """From the last checkpoint that is complete: ``.metadata`` is written after all else."""
        complete = sorted(path.parent for path in folder.glob("step-*/.metadata"))
        if not complete:
            return
        state = self.state()
        dcp.load(state, checkpoint_id=str(complete[-1]))
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = int(state["step"])
        say(f"resumed from step {self.step}")


def main() -> None:
    """Train, from where the last checkpoint is."""
    chosen = options()
    device = own_device(chosen.device)
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    whole: list[Any] = [None] * size
    dist.all_gather_object(whole, f"rank {rank}: process {os.getpid()} on {device}")
    say("\n".join(whole))

    text = repository_text()
    training = Training(len(text.characters), device)
    if chosen.checkpoints:
        training.resume(chosen.checkpoints)
    begin = time.monotonic()
    for number, (x, y) in enumerate(text.batches(chosen.steps, chosen.batch, training.model.context), 1):
        if number <= training.step:
            continue  # learned before the checkpoint
        loss = training.learn(x.chunk(size)[rank].to(device), y.chunk(size)[rank].to(device))
        if number % 10 == 0 or number == chosen.steps:
            dist.all_reduce(loss, op=dist.ReduceOp.SUM)
            say(f"step {number} of {chosen.steps}: loss {loss.item() / size:.4f}, {time.monotonic() - begin:.1f} s")
        if chosen.checkpoints and number % chosen.save_every == 0:
            training.save(chosen.checkpoints)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
