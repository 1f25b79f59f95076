"""Accelerate on the device: what its path for cuda does, against a loop on the CPU in plain torch."""

import pytest
import torch
from accelerate import Accelerator, dispatch_model, infer_auto_device_map, load_checkpoint_and_dispatch
from accelerate.utils import get_balanced_memory, get_max_memory, set_seed
from torch import nn

HALVES = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def made():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def batches():
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)) for _ in range(4)]


def on_the_cpu(precision, every=1):
    """The same training in plain torch."""
    model, scaler = made(), torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches()):
        with torch.autocast("cpu", HALVES[precision], enabled=precision != "no"):
            found = model(x)
        scaler.scale(nn.functional.mse_loss(found.float(), y) / every).backward()
        if (step + 1) % every == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return model


def trained(accelerator):
    model, inner = made(), []
    model[0].register_forward_hook(lambda module, inputs, output: inner.append(output.dtype))
    loader = torch.utils.data.DataLoader(batches(), batch_size=None)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for x, y in loader:
        assert x.device.type == accelerator.device.type
        with accelerator.accumulate(model):
            found = model(x)
            assert found.dtype == torch.float32
            accelerator.backward(nn.functional.mse_loss(found, y))
            optimizer.step()
            optimizer.zero_grad()
    return accelerator.unwrap_model(model), set(inner)


def assert_same(model, reference, **tolerance):
    for (key, ours), theirs in zip(model.state_dict().items(), reference.state_dict().values(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, msg=lambda text, key=key: f"{key}: {text}", **tolerance)


@pytest.mark.sample
@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("every", [1, 2])
def test_I04_training_is_that_of_the_cpu(device, precision, every):
    accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=every)
    assert accelerator.device.type == device.type
    model, inner = trained(accelerator)
    assert {parameter.device.type for parameter in model.parameters()} == {device.type}
    assert inner == {HALVES[precision]}
    tolerance = {} if precision == "no" else {"atol": 4e-3, "rtol": 0.02}
    assert_same(model, on_the_cpu(precision, every), **tolerance)
    if precision == "fp16":
        assert accelerator.scaler.is_enabled()
        assert accelerator.scaler._device == device.type
        assert accelerator.scaler._scale.device.type == device.type


def test_an_overflow_skips_a_step_and_halves_the_scale(device):
    accelerator = Accelerator(mixed_precision="fp16")
    model = made()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    accelerator.backward(model(torch.ones(2, 8, device=accelerator.device)).sum() * 1e30)
    scale = accelerator.scaler.get_scale()
    optimizer.step()
    assert optimizer.step_was_skipped
    assert accelerator.scaler.get_scale() == scale / 2
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_I04_states_are_saved_and_loaded(device, tmp_path):
    accelerator = Accelerator(mixed_precision="fp16")
    model = made()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
    accelerator.backward(model(torch.ones(2, 8, device=accelerator.device)).mean())
    assert accelerator.scaler.get_scale() > 1
    optimizer.step()
    assert not optimizer.step_was_skipped
    accelerator.save_state(str(tmp_path))
    kept = [tensor.clone() for tensor in model.state_dict().values()]
    drawn = torch.rand(5, device=device), torch.rand(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    accelerator.load_state(str(tmp_path))
    assert all(torch.equal(a, b) for a, b in zip(kept, model.state_dict().values(), strict=True))
    assert torch.equal(torch.rand(5, device=device), drawn[0])
    assert torch.equal(torch.rand(5), drawn[1])
    moments = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    assert {tensor.device.type for tensor in moments if tensor.dim()} == {device.type}


def test_set_seed_seeds_the_device(device):
    set_seed(5)
    first = torch.rand(4, device=device)
    set_seed(5)
    assert torch.equal(first, torch.rand(4, device=device))


@pytest.mark.sample
@pytest.mark.requires("multi_device")
def test_I04_memory_of_all_devices(device_module):
    found = get_max_memory()
    assert [key for key in found if isinstance(key, int)] == list(range(device_module.device_count()))
    assert all(0 < found[index] <= device_module.get_device_properties(index).total_memory for index in (0, 1))
    assert found["cpu"] > 0
    assert get_max_memory({0: "1KiB", "cpu": 5}) == {0: 1024, "cpu": 5}
    balanced = get_balanced_memory(nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]))
    assert balanced[0] < found[0] // 2


@pytest.mark.requires("multi_device")
@pytest.mark.parametrize("safe", [True, False])
def test_I04_a_big_model_over_devices_cpu_and_disk(device, tmp_path, safe):
    torch.manual_seed(3)
    reference = nn.Sequential(*[nn.Linear(32, 32) for _ in range(5)])
    x = torch.randn(3, 32)
    expected = reference(x)

    layers = {"0": 0, "1": 1, "2": "cpu", "3": "disk", "4": 0}
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(5)])
    if safe:
        from safetensors.torch import save_file

        path = tmp_path / "model.safetensors"
        save_file(reference.state_dict(), path, metadata={"format": "pt"})
    else:
        path = tmp_path / "model.bin"
        torch.save(reference.state_dict(), path)
    model = load_checkpoint_and_dispatch(model, str(path), device_map=layers, offload_folder=str(tmp_path / "offload"))
    assert set(model.hf_device_map.values()) == {0, 1, "cpu", "disk"}
    for index, child in enumerate(model):
        where = model.hf_device_map[str(index)]
        kept = torch.device("meta") if where in ("cpu", "disk") else torch.device(device.type, where)
        assert {parameter.device for parameter in child.parameters()} == {kept}
    found = model(x)
    assert found.device.type == "cpu"
    torch.testing.assert_close(found, expected)
    with pytest.raises(RuntimeError, match="offloaded"):
        getattr(model, device.type)()


@pytest.mark.requires("multi_device")
def test_device_map_auto_balances(device):
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)])
    expected = model(torch.ones(2, 32))
    layers = infer_auto_device_map(model, max_memory=get_balanced_memory(model))
    assert set(layers.values()) == {0, 1}
    model = dispatch_model(model, layers)
    torch.testing.assert_close(model(torch.ones(2, 32, device=device)).cpu(), expected)


OFF = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch, accelerate, transformers
from torch_backplane import integrations
ours = [str(one.message) for one in caught if one.category is integrations.IntegrationWarning]
import json
print(json.dumps([str(accelerate.Accelerator().device), ours]))
"""


def test_off_it_is_the_cpu_and_one_line(answer):
    device, lines = answer(OFF, MYDEVICE_INTEGRATIONS=None)
    assert device == "cpu"
    assert len(lines) == 1
    assert lines[0].startswith("accelerate does not choose mydevice by itself: MYDEVICE_INTEGRATIONS=auto ")
    assert answer(OFF, MYDEVICE_INTEGRATIONS="none") == ["cpu", []]


@pytest.mark.sample
def test_the_library_before_torch_and_auto_after_it(answer):
    """Accelerate imports torch, which imports the backend while Accelerate's modules are being imported."""
    code = "import json\nimport accelerate\n{}\nprint(json.dumps([str(accelerate.Accelerator().device)]))"
    assert answer(code.format("")) == ["mydevice"]
    late = code.format("import torch_backplane.integrations.auto")
    assert answer(late, MYDEVICE_INTEGRATIONS=None) == ["mydevice"]
