"""Started by test_I07_two_processes: ``lightning_ranks.py <package> <strategy> <precision> <accelerator>`` trains on
two devices; rank 0 prints what it saw as a line of JSON."""

import importlib
import json
import sys

import torch
from test_lightning import QUIET, batches, loss_of, made
from torch import nn

package, strategy, precision, accelerator = sys.argv[1:]
pl = importlib.import_module(package)


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.seen = made(), []

    def training_step(self, batch, index):
        found = self.net(batch[0])
        self.seen.append([str(batch[0].device), str(self.net[0](batch[0]).dtype)])
        return loss_of(found, batch[1])

    def train_dataloader(self):
        """Of each pair of batches a rank has one."""
        return torch.utils.data.DataLoader(batches()[self.trainer.global_rank :: 2], batch_size=None)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def chosen():
    if strategy == "fsdp":
        return pl.strategies.FSDPStrategy(auto_wrap_policy={nn.Linear}, state_dict_type="full")
    if strategy == "hsdp":
        cut = {"device_mesh": (1, 2), "sharding_strategy": "HYBRID_SHARD"}
        return pl.strategies.FSDPStrategy(**cut, state_dict_type="full")
    if strategy == "hook":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        return pl.strategies.DDPStrategy(ddp_comm_hook=fp16_compress_hook)
    return strategy


def main():
    options = {"precision": precision, "max_epochs": 1, "use_distributed_sampler": False}
    trainer = pl.Trainer(accelerator=accelerator, devices=2, strategy=chosen(), **options, **QUIET)
    module, running = Module(), []

    def look():
        running[:] = [torch.distributed.get_backend(), len(getattr(trainer.strategy.model, "_comm_hooks", []))]

    module.on_train_start = look
    trainer.fit(module)
    trainer.save_checkpoint("two.ckpt")
    if trainer.global_rank == 0:
        saved = torch.load("two.ckpt", map_location="cpu", weights_only=False)["state_dict"]
        state = {key: value.tolist() for key, value in saved.items()}
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        scale = scaler.get_scale() if scaler else None
        print(json.dumps([str(trainer.strategy.root_device), module.seen, state, *running, scale]))


if __name__ == "__main__":
    main()
