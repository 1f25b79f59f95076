"""Trains with Accelerate in as many processes as were launched; rank 0 prints the weights and what it runs on.

The arguments: the mixed precision, and ``fsdp1`` or ``fsdp2``. Each rank takes its part of the same batches.
"""

import json
import sys

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import GradScalerKwargs, gather_object
from torch import nn


def main(precision="no", how="ddp", folder=""):
    plugin = None
    if how != "ddp":
        version = int(how[-1])
        original = {"use_orig_params": True} if version == 1 else {}  # the optimizer is made before
        plugin = FullyShardedDataParallelPlugin(fsdp_version=version, auto_wrap_policy="no_wrap", **original)
    scaling = GradScalerKwargs(init_scale=256.0)  # no step overflows
    accelerator = Accelerator(mixed_precision=precision, fsdp_plugin=plugin, kwargs_handlers=[scaling])
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    generator = torch.Generator().manual_seed(2)
    data = [(torch.randn(8, generator=generator), torch.randn(4, generator=generator)) for _ in range(24)]
    loader = torch.utils.data.DataLoader(data, batch_size=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    inner = set()
    nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: inner.add(str(output.dtype)) if isinstance(module, nn.Linear) else None
    )
    places = sorted({parameter.device.type for parameter in model.parameters()})
    for x, y in loader:
        found = model(x)
        accelerator.backward(nn.functional.mse_loss(found, y))
        optimizer.step()
        optimizer.zero_grad()
    state = {key: value.cpu() for key, value in accelerator.get_state_dict(model).items()}
    if folder:
        accelerator.save_state(folder)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        accelerator.load_state(folder)
        loaded = accelerator.get_state_dict(model)
        if accelerator.is_main_process:
            assert all(torch.equal(loaded[key].cpu(), value) for key, value in state.items())
    ranks = accelerator.gather(torch.tensor([accelerator.process_index], device=accelerator.device))
    devices = gather_object([str(accelerator.device)])
    if accelerator.is_main_process:
        weights = {key: value.float().tolist() for key, value in state.items()}
        scaler = accelerator.scaler
        scale = None if scaler is None else [scaler.is_enabled(), str(scaler._device)]
        said = {"weights": weights, "ranks": ranks.tolist(), "devices": devices, "scaler": scale}
        print(json.dumps({**said, "dtypes": sorted(inner), "parameters": places}), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
