"""Steps for Lightning's Fabric, some of which the Trainer needs, too; the others are in ``_lightning_trainer``."""

from __future__ import annotations

import sys
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations import _lightning_accelerator as accelerator
from torch_backplane.integrations._library import Integration, Patch, Unexpected


def add_fabric(integration: Integration, root: str) -> None:
    """Add the steps for the package ``root``, which is ``lightning.fabric`` or ``lightning_fabric``."""
    integration.after(root)(lambda module, patch: arrange(root, patch))
    integration.after(f"{root}.cli")(_command_line)


def arrange(root: str, patch: Patch) -> str:
    """Run all steps on a Fabric that has been imported."""
    device_parser, connector = part(root, "utilities.device_parser"), part(root, "connector")

    _prefer(device_parser, "_select_auto_accelerator", patch)
    _prefer(connector._Connector, "_choose_auto_accelerator", patch)
    _utilities(root, patch)
    add_connector(connector, connector._Connector, patch)
    add_precision(part(root, "plugins.precision.fsdp").FSDPPrecision, patch)
    add_strategies(root, patch)
    accelerator.register(part(root, "accelerators"), patch, ValueError)
    return f"Fabric has the accelerator {_backend.device}, its strategies and its mixed precision"


def part(root: str, name: str) -> Any:
    """A module that the package has imported."""
    module = sys.modules.get(f"{root}.{name}")
    if module is None:
        raise Unexpected(f"{root} has no {name}")
    return module


def _prefer(owner: Any, function: str, patch: Patch) -> None:
    """A function that chooses an accelerator chooses this one, if it is torch's."""

    @patch(owner, function, takes="")
    def choose(original: Any) -> str:
        return _backend.device if accelerator.is_current() else original()


def add_connector(module: Any, connector: Any, patch: Patch) -> None:
    """Fabric's or the Trainer's connector: it turns ``accelerator=``, ``strategy=``, ``precision=`` into objects."""
    _prefer(connector, "_choose_gpu_accelerator_backend", patch)

    @patch(connector, "_check_config_and_set_final_flags", takes="self strategy accelerator precision plugins")
    def check_config(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        devices = getattr(self._strategy_flag, "parallel_devices", None)
        if devices and devices[0].type == _backend.device:
            flag = self._accelerator_flag
            if flag not in ("auto", "gpu", _backend.device) and not accelerator.is_ours(flag):
                raise ValueError(
                    f"{_backend.device} parallel_devices set through {type(self._strategy_flag).__name__} class, "
                    f"but accelerator set to {flag}, please choose one device type"
                )
            self._accelerator_flag = flag if accelerator.is_ours(flag) else _backend.device

    @patch(connector, "_set_devices_flag_if_auto_passed", takes="self")
    def set_devices(original: Any, self: Any) -> None:
        asked = self._devices_flag
        original(self)
        if asked == "auto" and module._IS_INTERACTIVE and accelerator.is_ours(self.accelerator):
            self._devices_flag = 1  # as for CUDA in a notebook

    @patch(connector, "_choose_strategy", takes="self")
    def choose_strategy(original: Any, self: Any) -> Any:
        strategy = original(self)
        if accelerator.is_ours(self.accelerator) and isinstance(strategy, module.SingleDeviceStrategy):
            return module.SingleDeviceStrategy(device=self._parallel_devices[0])
        return strategy

    @patch(connector, "_check_strategy_and_fallback", takes="self")
    def check_strategy(original: Any, self: Any) -> None:
        if not accelerator.is_ours(self.accelerator):
            return original(self)
        if self._strategy_flag == "dp":
            raise ValueError(
                f"strategy='dp' is torch.nn.DataParallel, which supports CUDA only. For {_backend.device} "
                "use strategy='ddp'"
            )
        flag, self._accelerator_flag = self._accelerator_flag, "cuda"  # the check for FSDP requires a GPU
        try:
            return original(self)
        finally:
            self._accelerator_flag = flag

    @patch(connector, "_check_and_init_precision", takes="self")
    def init_precision(original: Any, self: Any) -> Any:
        names = [name for name in ("_precision_flag", "_precision_input") if hasattr(self, name)]
        given = getattr(self, "_precision_plugin_flag", None) or getattr(self, "_precision_instance", None)
        asked = getattr(self, names[0])
        if given or not accelerator.is_ours(self.accelerator) or asked not in ("16-mixed", "bf16-mixed"):
            return original(self)
        for name in names:
            setattr(self, name, "32-true")
        plain = original(self)  # some strategies have their own, without a device
        for name in names:
            setattr(self, name, asked)
        if type(plain) is not module.Precision:
            return original(self)
        return module.MixedPrecision(asked, _backend.device)


def add_precision(plugin: Any, patch: Patch) -> None:
    """FSDPPrecision uses CUDA and takes no device: give it the accelerator's autocast and scaler."""

    @patch(plugin, "__init__", takes="self precision scaler")
    def init(original: Any, self: Any, precision: str, scaler: Any = None) -> None:
        if precision != "16-mixed" or scaler is not None or not accelerator.is_current():
            return original(self, precision, scaler)
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        original(self, "bf16-mixed")  # the same but for the scaler, which would be CUDA's
        self.precision, self.scaler = precision, ShardedGradScaler(device=_backend.device)
        return None

    @patch(plugin, "forward_context", takes="self")
    def forward_context(original: Any, self: Any) -> Any:
        if "mixed" not in self.precision or not accelerator.is_current():
            return original(self)
        dtype = torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16
        return torch.autocast(_backend.device, dtype=dtype)


def add_wrapping(strategy: Any, method: str, ids: str, argument: str, kwargs: str, patch: Patch) -> None:
    """DDP is created on a side stream, so that a graph can capture the backward: make it one of the device's."""

    @patch(strategy, method, takes=f"self {argument}")
    def wrap(original: Any, self: Any, model: torch.nn.Module) -> Any:
        if self.root_device.type != _backend.device:
            return original(self, model)
        side, current = torch.Stream(self.root_device), torch.accelerator.current_stream(self.root_device)
        side.wait_stream(current)
        with side:
            wrapped = torch.nn.parallel.DistributedDataParallel(
                module=model, device_ids=getattr(self, ids)(), **getattr(self, kwargs)
            )
        current.wait_stream(side)
        return wrapped


def add_mesh(strategy: Any, kwargs: str, patch: Patch) -> None:
    """``FSDPStrategy(device_mesh=(2, 2))``: Lightning makes the mesh of CUDA devices."""

    @patch(strategy, "setup_environment", takes="self")
    def setup_environment(original: Any, self: Any) -> None:
        options = getattr(self, kwargs)
        shape = options.get("device_mesh")
        if not isinstance(shape, tuple) or self.root_device.type != _backend.device:
            return original(self)
        del options["device_mesh"]
        original(self)
        options["device_mesh"] = torch.distributed.init_device_mesh(_backend.device, shape)
        return None


def add_strategies(root: str, patch: Patch) -> None:
    """Fabric's DDP and FSDP."""
    ddp, fsdp = part(root, "strategies.ddp").DDPStrategy, part(root, "strategies.fsdp").FSDPStrategy
    add_wrapping(ddp, "setup_module", "_determine_ddp_device_ids", "module", "_ddp_kwargs", patch)
    add_mesh(fsdp, "_fsdp_kwargs", patch)


def _utilities(root: str, patch: Patch) -> None:
    """A module's ``device``, and the random states that are restored after a sanity check."""
    mixin = part(root, "utilities.device_dtype_mixin")._DeviceDtypeModuleMixin

    @patch(mixin, "device", takes="self")
    def device(original: Any, self: Any) -> torch.device:
        found: torch.device = original(self)
        if found.type == _backend.device and found.index is None:
            return torch.device(found.type, accelerator.device_module().current_device())
        return found

    key = f"torch.{_backend.device}"
    seed = part(root, "utilities.seed")

    @patch(seed, "_collect_rng_states", takes="include_cuda")
    def collect(original: Any, include_cuda: bool = True) -> dict[str, Any]:
        states: dict[str, Any] = original(include_cuda)
        if include_cuda and accelerator.is_current():
            states[key] = accelerator.device_module().get_rng_state_all()
        return states

    @patch(seed, "_set_rng_states", takes="rng_state_dict")
    def put_back(original: Any, rng_state_dict: dict[str, Any]) -> None:
        original(rng_state_dict)
        if key in rng_state_dict:
            accelerator.device_module().set_rng_state_all(rng_state_dict[key])


def _command_line(module: Any, patch: Patch) -> str:
    """``fabric run --accelerator=<device>``: the command makes a list of devices when it is imported."""
    names = (*module._SUPPORTED_ACCELERATORS, _backend.device)
    patch.value(module, "_SUPPORTED_ACCELERATORS", lambda found: names)
    if command := getattr(module, "_run", None):  # there is none without the package click
        option = next(option for option in command.params if option.name == "accelerator")
        patch.value(option, "type", lambda found: type(found)(names))

    @patch(module, "_get_num_processes", takes="accelerator devices")
    def processes(original: Any, accelerator_name: str | None, devices: str) -> int:
        auto = accelerator_name in (None, "auto", "gpu") and accelerator.is_current()
        if not auto and accelerator_name != _backend.device:
            return original(accelerator_name, devices)
        return len(accelerator.parse_devices("1" if devices == "auto" else devices, ValueError))

    return f"fabric run takes --accelerator={_backend.device}"
