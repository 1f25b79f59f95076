"""Trains with DeepSpeed in as many processes as were launched; rank 0 writes the losses and weights of each stage.

The arguments: a folder for checkpoints and ``found.json``, and the stages of ZeRO, such as ``2`` or ``3:bf16``. Each
rank takes its part of the same batches.
"""

import argparse
import json
from pathlib import Path

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from torch import nn

STEPS, ROWS = 3, 6


def model_and_data():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    generator = torch.Generator().manual_seed(2)
    return model, torch.randn(STEPS, ROWS, 8, generator=generator), torch.randn(STEPS, ROWS, 4, generator=generator)


def engine_of(stage, model):
    number, _, precision = stage.partition(":")
    config = {
        "train_batch_size": ROWS,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1}},
        "zero_optimization": {"stage": int(number)},
        "steps_per_print": 1000,
    }
    if precision:
        config[precision] = {"enabled": True, **({"initial_scale_power": 8} if precision == "fp16" else {})}
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def whole(engine):
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        return {key: value.detach().float().cpu() for key, value in engine.module.state_dict().items()}


def trained(stage, folder):
    model, x, y = model_and_data()
    engine = engine_of(stage, model)
    dtype, rows = next(model.parameters()).dtype, ROWS // torch.distributed.get_world_size()
    here = slice(engine.local_rank * rows, (engine.local_rank + 1) * rows)
    losses = []
    for inputs, wanted in zip(x, y, strict=True):
        found = engine(inputs[here].to(engine.device, dtype))
        loss = nn.functional.mse_loss(found.float(), wanted[here].to(engine.device))
        engine.backward(loss)
        engine.step()
        torch.distributed.all_reduce(loss)
        losses.append(loss.item() / torch.distributed.get_world_size())
    weights = whole(engine)
    if not stage.partition(":")[2]:
        engine.save_checkpoint(folder, tag=stage)
        again = engine_of(stage, model_and_data()[0])
        again.load_checkpoint(folder, tag=stage)
        for key, value in whole(again).items():
            torch.testing.assert_close(value, weights[key], rtol=0, atol=0)
    return {
        "losses": losses,
        "weights": {key: value.tolist() for key, value in weights.items()},
        "where": [str(engine.device), str(dtype), type(engine.optimizer).__name__],
    }


def main(folder, *stages):
    deepspeed.init_distributed()
    found = {stage: trained(stage, folder) for stage in stages}
    found["backend"] = torch.distributed.get_backend()
    found["accelerator"] = get_accelerator().device_name()
    found["ranks"] = torch.distributed.get_world_size()
    if torch.distributed.get_rank() == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, help="as DeepSpeed's launcher passes it")
    main(*parser.parse_known_args()[1])
