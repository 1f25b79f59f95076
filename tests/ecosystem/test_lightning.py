"""Lightning on the device: what its path for cuda does, against a loop on the CPU in plain torch."""

import importlib
import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

HALVES = {
    "32-true": torch.float32,
    "bf16-mixed": torch.bfloat16,
    "16-mixed": torch.float16,
    "bf16-true": torch.bfloat16,
    "16-true": torch.float16,
    "64-true": torch.float64,
}
EXACT = ("32-true", "64-true")
QUIET = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def pl(request):
    return importlib.import_module(request.param)


def made():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def batches(count=4):
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)) for _ in range(count)]


def loader(count=4):
    return torch.utils.data.DataLoader(batches(count), batch_size=None)


def loss_of(found, y):
    return nn.functional.mse_loss(found.float(), y.float())


def on_the_cpu(precision="32-true", clip=None, epochs=1):
    """The same training in plain torch: parameters, and the scale at the end."""
    half = HALVES[precision]
    model = made() if "mixed" in precision else made().to(half)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "16-mixed")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in itertools.chain(*[batches()] * epochs):
        x = x if "mixed" in precision else x.to(half)
        with torch.autocast("cpu", half, enabled="mixed" in precision):
            loss = loss_of(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
    return model, scaler.get_scale()


def module_of(pl, manual=False, batch_size=None):
    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = made()
            self.seen = []
            self.batch_size = batch_size
            self.automatic_optimization = not manual
            self.net[0].register_forward_hook(
                lambda module, inputs, output: self.seen.append((inputs[0].device, output.dtype))
            )

        def train_dataloader(self):
            if not self.batch_size:
                return loader()
            return torch.utils.data.DataLoader([(torch.ones(8), torch.ones(4))] * 4096, batch_size=self.batch_size)

        def training_step(self, batch, index):
            if len(batch[0]) >= 64:  # more than the memory holds, as it were
                torch.empty(1 << 50, dtype=torch.uint8, device=self.device)
            loss = loss_of(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            if manual:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

    return Module()


def trained(pl, accelerator="auto", manual=False, ckpt_path=None, **options):
    trainer = pl.Trainer(**{**QUIET, "accelerator": accelerator, "devices": 1, "max_epochs": 1, **options})
    module = module_of(pl, manual)
    where = []
    module.on_train_end = lambda: where.extend(parameter.device for parameter in module.parameters())
    trainer.fit(module, ckpt_path=ckpt_path)
    module.where = set(where)
    return trainer, module


def assert_same(model, reference, precision="32-true"):
    tolerance = {} if precision in EXACT else {"atol": 4e-3, "rtol": 0.02}
    for (key, ours), theirs in zip(model.state_dict().items(), reference.state_dict().values(), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours.cpu(), theirs, msg=lambda text, key=key: f"{key}: {text}", **tolerance)


@pytest.mark.sample
@pytest.mark.parametrize("precision", HALVES)
def test_I07_training_is_that_of_the_cpu(pl, device, precision):
    trainer, module = trained(pl, precision=precision, gradient_clip_val=0.5)
    first = torch.device(device.type, 0)
    assert trainer.strategy.root_device == first
    assert module.where == {first}
    assert set(module.seen) == {(first, HALVES[precision])}
    reference, scale = on_the_cpu(precision, clip=0.5)
    assert_same(module.net, reference, precision)
    if precision == "16-mixed":
        scaler = trainer.precision_plugin.scaler
        assert scaler.is_enabled()
        assert scaler._scale.device == first
        assert scaler.get_scale() == scale > 1


@pytest.mark.parametrize("accelerator", ["auto", "gpu", "name", "instance"])
def test_I07_all_ways_to_name_it(pl, device, accelerator, caplog):
    registry = importlib.import_module(f"{pl.__name__}.accelerators").AcceleratorRegistry
    given = {"name": device.type, "instance": registry.get(device.type)}.get(accelerator, accelerator)
    with caplog.at_level("INFO"):
        trainer, module = trained(pl, given, precision="bf16-mixed", fast_dev_run=2)
    assert f"{device.type} available: True, used: True" in caplog.text
    assert trainer.accelerator.name() == device.type
    assert set(module.seen) == {(torch.device(device.type, 0), torch.bfloat16)}


@pytest.mark.requires("multi_device")
@pytest.mark.parametrize("devices", [[1], "1,"])
def test_I07_a_device_by_index(pl, device, devices):
    trainer, module = trained(pl, devices=devices, fast_dev_run=1)
    assert trainer.strategy.root_device == torch.device(device.type, 1)
    assert module.where == {torch.device(device.type, 1)}


@pytest.mark.parametrize(
    ("devices", "kind", "text"),
    [
        ([0, 0], "MisconfigurationException", "twice"),
        ([99], "MisconfigurationException", "this process sees"),
        (99, "MisconfigurationException", "this process sees"),
        (-2, "MisconfigurationException", "this process sees"),
        ("one", "MisconfigurationException", "neither a number"),
        ([0.5], "TypeError", "list of ints"),
        ([True], "TypeError", "list of ints"),
    ],
)
def test_devices_that_are_not_there(pl, device, devices, kind, text):
    with pytest.raises(Exception, match=text) as raised:
        pl.Trainer(**QUIET, accelerator=device.type, devices=devices)
    assert type(raised.value).__name__ == kind


@pytest.mark.requires("multi_device")
def test_devices_as_for_cuda(device, device_module):
    from torch_backplane.integrations._lightning_accelerator import parse_devices

    every = list(range(device_module.device_count()))
    asked = {2: [0, 1], "2": [0, 1], -1: every, "-1": every, "0,1": [0, 1], "1,": [1], (1, 0): [1, 0]}
    assert {key: parse_devices(key, ValueError) for key in asked} == asked


def test_a_strategy_for_the_device_and_an_accelerator_for_the_cpu(pl, device):
    strategy = pl.strategies.DDPStrategy(parallel_devices=[torch.device(device.type, 0)])
    with pytest.raises(ValueError, match="choose one device type"):
        pl.Trainer(**QUIET, accelerator="cpu", strategy=strategy)


def test_I07_manual_optimization(pl, device):
    _, module = trained(pl, manual=True, precision="16-mixed")
    assert_same(module.net, on_the_cpu("16-mixed")[0], "16-mixed")


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_I07_training_goes_on_from_a_checkpoint(pl, device, tmp_path, precision):
    options = {"precision": precision, "enable_checkpointing": True, "default_root_dir": tmp_path}
    trainer, _ = trained(pl, **options)
    path = trainer.checkpoint_callback.best_model_path
    saved = torch.load(path, weights_only=False)
    assert {value.device.type for value in saved["state_dict"].values()} == {device.type}

    resumed, module = trained(pl, **options, max_epochs=2, ckpt_path=path)
    assert resumed.current_epoch == 2
    assert len(module.seen) == len(batches())
    reference, scale = on_the_cpu(precision, epochs=2)
    assert_same(module.net, reference, precision)
    if precision == "16-mixed":
        assert resumed.precision_plugin.scaler.get_scale() == scale
    loaded = type(module).load_from_checkpoint(path, map_location="cpu")
    assert loaded.device.type == "cpu"
    assert_same(loaded.net, on_the_cpu(precision)[0], precision)


def test_early_stopping_and_statistics(pl, device, tmp_path):
    callbacks = importlib.import_module(f"{pl.__name__}.callbacks")
    loggers = importlib.import_module(f"{pl.__name__}.loggers")
    stop = callbacks.EarlyStopping("loss", divergence_threshold=-1.0, check_on_train_epoch_end=True)
    logger = loggers.CSVLogger(tmp_path)
    watch = callbacks.DeviceStatsMonitor(cpu_stats=False)
    trainer, _ = trained(pl, max_epochs=5, callbacks=[stop, watch], logger=logger, log_every_n_steps=1)
    assert trainer.current_epoch == 1
    assert stop.stopped_epoch == 0
    assert "allocated_bytes.all.current" in (tmp_path / "lightning_logs/version_0/metrics.csv").read_text()


def test_a_throughput_is_read_when_the_work_is_done(pl, device, tmp_path, monkeypatch):
    callbacks = importlib.import_module(f"{pl.__name__}.callbacks")
    loggers = importlib.import_module(f"{pl.__name__}.loggers")
    waits = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *which: waits.append(which))
    monitor = callbacks.ThroughputMonitor(batch_size_fn=lambda batch: len(batch[0]))
    trained(pl, callbacks=[monitor], logger=loggers.CSVLogger(tmp_path), log_every_n_steps=1)
    assert len(waits) == len(batches())


def test_a_sanity_check_leaves_the_devices_random_numbers(pl, device):
    pl.seed_everything(3)
    expected = torch.rand(3, device=device)
    pl.seed_everything(3)
    isolate_rng = importlib.import_module(f"{pl.__name__}.utilities.seed").isolate_rng
    with isolate_rng():
        torch.rand(7, device=device)
    assert torch.equal(torch.rand(3, device=device), expected)


@pytest.mark.requires("multi_device")
def test_a_module_says_its_devices_index(pl, device, device_module):
    module = module_of(pl)
    assert module.to(device.type).device == torch.device(device.type, 0)
    device_module.set_device(1)
    assert module.to(device.type).device == torch.device(device.type, 1)


def test_a_batch_that_does_not_fit_is_halved(pl, device, tmp_path):
    trainer = pl.Trainer(**QUIET, accelerator="auto", devices=1, max_epochs=1, default_root_dir=tmp_path)
    tuner = importlib.import_module(f"{pl.__name__}.tuner").Tuner(trainer)
    assert tuner.scale_batch_size(module_of(pl, batch_size=2), init_val=16, max_trials=4, steps_per_trial=1) == 32


def test_the_profiler_sees_the_device(pl, device, tmp_path):
    profiler = importlib.import_module(f"{pl.__name__}.profilers").PyTorchProfiler(dirpath=tmp_path, filename="seen")
    trained(pl, profiler=profiler, max_epochs=2)
    assert any(event.self_device_time_total > 0 for event in profiler.function_events.key_averages())


def test_one_device_in_a_notebook(pl, device, monkeypatch):
    connector = importlib.import_module(f"{pl.__name__}.trainer.connectors.accelerator_connector")
    monkeypatch.setattr(connector, "_IS_INTERACTIVE", True)
    assert pl.Trainer(**QUIET).num_devices == 1


def test_what_is_for_cuda_alone_says_so(device):
    from lightning.fabric import Fabric

    with pytest.raises(ValueError, match="strategy='ddp'"):
        Fabric(accelerator=device.type, strategy="dp")


@pytest.mark.sample
@pytest.mark.parametrize("package", ["lightning.fabric", "lightning_fabric"])
@pytest.mark.parametrize("precision", HALVES)
def test_I07_fabric_is_as_the_cpu(package, device, precision):
    fabric = importlib.import_module(package).Fabric(devices=1, precision=precision)
    assert fabric.device == torch.device(device.type, 0)
    model, seen = made(), []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append((inputs[0].device, output.dtype)))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for x, y in fabric.setup_dataloaders(loader()):
        optimizer.zero_grad()
        fabric.backward(loss_of(model(x), y))
        fabric.clip_gradients(model, optimizer, max_norm=0.5)
        optimizer.step()
    assert set(seen) == {(fabric.device, HALVES[precision])}
    assert_same(model.module, on_the_cpu(precision, clip=0.5)[0], precision)


def test_the_command_of_fabric(device):
    from lightning.fabric import cli

    accelerator = next(option for option in cli._run.params if option.name == "accelerator")
    assert device.type in accelerator.type.choices
    assert cli._get_num_processes(device.type, "2") == cli._get_num_processes("auto", "2") == 2
    assert cli._get_num_processes(device.type, "auto") == 1
    assert cli._get_num_processes("cpu", "3") == 3


def two_on_the_cpu(precision):
    """A step on the mean over a pair of batches; the scale starts so high that a step may be left out."""
    model, scaler = made(), torch.amp.GradScaler("cpu", enabled=precision == "16-mixed")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = batches()
    for pair in zip(given[::2], given[1::2], strict=True):
        optimizer.zero_grad()
        for x, y in pair:
            with torch.autocast("cpu", HALVES[precision], enabled="mixed" in precision):
                loss = loss_of(model(x), y) / 2
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return model, scaler.get_scale()


@pytest.mark.long
@pytest.mark.requires("multi_device")
@pytest.mark.parametrize(
    ("package", "strategy", "precision", "launcher"),
    [
        ("lightning.pytorch", "auto", "32-true", ()),
        ("lightning.pytorch", "ddp", "32-true", ("-m", "torch.distributed.run", "--nproc-per-node=2")),
        ("pytorch_lightning", "ddp", "16-mixed", ()),
        ("lightning.pytorch", "ddp", "bf16-mixed", ()),
        ("lightning.pytorch", "hook", "32-true", ()),
        ("lightning.pytorch", "fsdp", "32-true", ()),
        ("lightning.pytorch", "fsdp", "bf16-mixed", ()),
        ("pytorch_lightning", "fsdp", "16-mixed", ()),
        ("lightning.pytorch", "hsdp", "32-true", ()),
    ],
)
def test_I07_two_processes(answer, device, package, strategy, precision, launcher):
    program = Path(__file__).with_name("lightning_ranks.py")
    accelerator = device.type if strategy == "ddp" else "auto"
    found, seen, state, backend, hooks, scale = answer(
        program, package, strategy, precision, accelerator, launcher=launcher
    )
    assert found == f"{device.type}:0"
    assert seen == [[f"{device.type}:0", str(HALVES[precision])]] * 2
    assert backend == f"{device.type}ccl"
    assert hooks == (1 if strategy == "hook" else 0)
    reference, expected = two_on_the_cpu(precision)
    tolerance = {} if precision in EXACT and strategy != "hook" else {"atol": 4e-3, "rtol": 0.02}
    for key, value in reference.state_dict().items():
        torch.testing.assert_close(
            torch.tensor(state[f"net.{key}"]), value, msg=lambda text, key=key: f"{key}: {text}", **tolerance
        )
    if precision == "16-mixed":
        assert scale == expected
