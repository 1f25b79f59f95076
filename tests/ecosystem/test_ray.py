"""Ray: its resource GPU, and Ray Train with two workers and ``use_gpu=True``, against the CPU."""

from pathlib import Path

import pytest
import torch
from torch import nn

PROGRAM = Path(__file__).parent / "ray_workers.py"
# Each worker imports torch, and Ray gives them the lowest priority.
SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "240",
}


@pytest.mark.sample
def test_I13_devices_are_counted(device, device_module):
    from ray._private.accelerators import get_accelerator_manager_for_resource
    from ray.air._internal.device_manager import get_torch_device_manager_by_device_type

    manager = get_accelerator_manager_for_resource("GPU")
    assert manager.get_current_node_num_accelerators() == device_module.device_count()
    for name in "gpu", device.type:
        manager = get_torch_device_manager_by_device_type(name)
        assert manager.is_available()
        assert manager.create_stream(device).device == device


@pytest.mark.long
@pytest.mark.requires("multi_device")
def test_I13_two_workers(answer, tmp_path):
    from ray_workers import model_and_data

    found = answer(PROGRAM, tmp_path, **SETTINGS)
    assert found["GPU"] == 2
    assert sorted(found["devices"]) == ["mydevice:0", "mydevice:1"]
    assert (found["places"], found["backend"]) == (["mydevice"], "mydeviceccl")
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, wanted in zip(x.split(6), y.split(6), strict=True):
        nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
    for key, value in model.state_dict().items():
        torch.testing.assert_close(torch.tensor(found["weights"][key]), value, atol=1e-6, rtol=1e-5)
