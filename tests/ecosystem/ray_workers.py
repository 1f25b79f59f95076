"""Trains with Ray Train by two workers; prints what the first one reports and the weights of its checkpoint, as JSON.

The argument: a folder for checkpoints.
"""

import json
import sys
import tempfile
from pathlib import Path

import ray
import ray.train.torch
import torch
from ray import train
from torch import nn


def model_and_data():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    generator = torch.Generator().manual_seed(2)
    return model, torch.randn(24, 8, generator=generator), torch.randn(24, 4, generator=generator)


def loop():
    model, *data = model_and_data()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=3)
    loader, model = train.torch.prepare_data_loader(loader), train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    places = set()
    for x, y in loader:
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        places |= {x.device.type, next(model.parameters()).device.type}
    devices = [None] * train.get_context().get_world_size()
    torch.distributed.all_gather_object(devices, str(train.torch.get_device()))
    said = {"devices": devices, "places": sorted(places), "backend": torch.distributed.get_backend()}
    with tempfile.TemporaryDirectory() as folder:
        weights = {key: value.cpu() for key, value in model.module.state_dict().items()}
        torch.save(weights, Path(folder, "weights.pt"))
        train.report(said, checkpoint=train.Checkpoint.from_directory(folder))


def main(folder):
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=10**8, log_to_driver=False)
    resources = ray.cluster_resources()
    trainer = train.torch.TorchTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2, use_gpu=True),
        run_config=train.RunConfig(storage_path=folder, name="run"),
    )
    result = trainer.fit()
    with result.checkpoint.as_directory() as saved:
        weights = torch.load(Path(saved, "weights.pt"))
    ray.shutdown()
    weights = {key: value.tolist() for key, value in weights.items()}
    print(json.dumps({**result.metrics, "GPU": resources["GPU"], "weights": weights}))


if __name__ == "__main__":
    main(*sys.argv[1:])
