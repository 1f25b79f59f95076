"""DeepSpeed: its launcher with two processes, ZeRO 0 to 3 in three dtypes, its Adam, checkpoints, against the CPU."""

import json
import socket
from pathlib import Path

import pytest
import torch
from torch import nn

PROGRAM = Path(__file__).parent / "deepspeed_ranks.py"
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LAUNCHER = ["-m", "deepspeed.launcher.runner"]
CHOSEN = "from deepspeed.accelerator import get_accelerator\nprint(get_accelerator().device_name())\n"


def expected():
    """The same by torch's Adam, on the CPU and in one process, which takes whole batches."""
    from deepspeed_ranks import model_and_data

    model, x, y = model_and_data()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)
    losses = []
    for inputs, wanted in zip(x, y, strict=True):
        loss = nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # as DeepSpeed does by default
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


@pytest.mark.sample
def test_I11_the_accelerator_is_the_device(run):
    assert run(CHOSEN).splitlines()[-1] == "mydevice"
    assert run(CHOSEN, DS_ACCELERATOR="mydevice").splitlines()[-1] == "mydevice"
    assert run(CHOSEN, DS_ACCELERATOR="cpu").splitlines()[-1] == "cpu"


@pytest.mark.requires("multi_device")
def test_I11_stages_on_two_devices(run, tmp_path):
    stages = ["0", "1", "2", "3", "1:bf16", "3:bf16", "2:fp16"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options = ["--num_gpus", "2", "--master_port", free.getsockname()[1]]
    run(PROGRAM, tmp_path, *stages, launcher=[*LAUNCHER, *map(str, options)])
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["accelerator"], found["backend"], found["ranks"]) == ("mydevice", "mydeviceccl", 2)
    losses, weights = expected()
    for stage in stages:
        dtype = HALVES.get(stage.partition(":")[2], torch.float32)
        assert found[stage]["where"][:2] == ["mydevice:0", str(dtype)]
        exact = dtype == torch.float32
        assert found[stage]["losses"] == pytest.approx(losses, rel=1e-5 if exact else 0.02)
        tolerance = {"atol": 1e-5, "rtol": 1e-4} if exact else {"atol": 0.02, "rtol": 0.05}
        for key, value in weights.items():
            torch.testing.assert_close(torch.tensor(found[stage]["weights"][key]), value, **tolerance)
