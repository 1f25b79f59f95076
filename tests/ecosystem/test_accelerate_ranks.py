"""Accelerate with two processes: ``accelerate launch``, torchrun, notebooks; DDP and both kinds of FSDP."""

import socket
from pathlib import Path

import pytest
import torch
from torch import nn

LIBRARIES = ("accelerate",)
PROGRAM = Path(__file__).parent / "accelerate_ranks.py"
LAUNCH = ["-m", "accelerate.commands.accelerate_cli", "launch", "--main_process_port", "0"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}

pytestmark = pytest.mark.requires("multi_device")


def in_one_process(precision):
    """The same on the CPU: a step takes both ranks' batches."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    generator = torch.Generator().manual_seed(2)
    data = [(torch.randn(8, generator=generator), torch.randn(4, generator=generator)) for _ in range(24)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in range(0, 24, 6):
        x, y = map(torch.stack, zip(*data[start : start + 6], strict=True))
        with torch.autocast("cpu", HALVES.get(precision), enabled=precision != "no"):
            found = model(x)
        nn.functional.mse_loss(found.float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def assert_same(found, precision):
    assert found["ranks"] == [0, 1]
    assert found["devices"] == ["mydevice:0", "mydevice:1"]
    assert found["parameters"] == ["mydevice"]
    assert found["dtypes"] == [str(HALVES.get(precision, torch.float32))]
    assert found["scaler"] == ([True, "mydevice"] if precision == "fp16" else None)
    tolerance = {"atol": 1e-6, "rtol": 1e-5} if precision == "no" else {"atol": 1e-2, "rtol": 0.05}
    for key, value in in_one_process(precision).items():
        torch.testing.assert_close(torch.tensor(found["weights"][key]), value, **tolerance)


@pytest.mark.sample
def test_I04_accelerate_launch_starts_a_process_for_each_device(answer):
    assert_same(answer(PROGRAM, launcher=LAUNCH), "no")


@pytest.mark.parametrize(
    ("precision", "how"),
    [
        ("fp16", "ddp"),
        ("bf16", "ddp"),
        ("no", "fsdp2"),
        ("bf16", "fsdp2"),
        ("fp16", "fsdp2"),
        ("no", "fsdp1"),
        ("fp16", "fsdp1"),
    ],
)
def test_I04_precisions_and_shards(answer, tmp_path, precision, how):
    folder = tmp_path / "state" if precision == "no" else ""
    assert_same(answer(PROGRAM, precision, how, folder, launcher=TORCHRUN), precision)


NOTEBOOK = """
import sys
sys.path.insert(0, {folder!r})
from accelerate import notebook_launcher
from accelerate_ranks import main
if __name__ == "__main__":
    notebook_launcher(main, num_processes=2, use_port="{port}")
"""


def test_notebook_launcher(answer):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert_same(answer(NOTEBOOK.format(folder=str(PROGRAM.parent), port=port)), "no")
