"""FlagGems: its list of vendors gets an entry, whose configurations are those of CUDA without repetitions."""

from __future__ import annotations

import enum
import importlib
import json
import os
import sys
from types import ModuleType
from typing import Any

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("flag-gems", "~=5.0.2")

VENDOR = "backplane"
"""The entry's name: FlagGems reads a vendor's modules as ``_<vendor>``, and names its database of configurations so."""


@integration.after("flag_gems.runtime.common")
def entry(module: Any, patch: Patch) -> str:
    """An enumeration of vendors."""

    def extended(known: Any) -> Any:
        values = {one.name: one.value for one in known}
        values[VENDOR.upper()] = max(values.values()) + 1
        enumeration: Any = enum.Enum
        vendors = enumeration("vendors", values, module=module.__name__)
        vendors.get_all_vendors = classmethod(known.get_all_vendors.__func__)
        return vendors

    patch.value(module, "vendors", extended)
    return f"the vendor {VENDOR} is {_backend.device}"


@integration.after("flag_gems.runtime.backend")
def folder(module: Any, patch: Patch) -> str:
    """A folder of each vendor, and a module of ``torch.backends`` of its device."""
    information = module.backend_utils.VendorInfoBase(VENDOR, _backend.device, "", "PrivateUse1", "cuda")
    _put(patch, f"_{VENDOR}", vendor_info=information, CUSTOMIZED_UNUSED_OPS=(), __path__=[])
    _put(patch, f"_{VENDOR}.ops")
    _put(patch, f"_{VENDOR}.fused")
    _put(patch, f"torch.backends.{_backend.device}")
    module.get_vendor_module("_nvidia", query=True)
    heuristics = importlib.import_module("_nvidia.heuristics_config_utils")  # which other vendors use as well
    patch.words(heuristics, "argmax_heur_tile_k softmax_heur_tile_k mean_heur_tile_k", cuda=_backend.device)

    @patch(module.backend_utils, "get_tune_config", takes="vendor_name file_mode file_path")
    def get_tune_config(original: Any, vendor_name: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if vendor_name != VENDOR:
            return original(vendor_name, *args, **kwargs)
        return {name: _distinct(configurations) for name, configurations in original("nvidia").items()}

    return "configurations for CUDA, each once"


@integration.after("flag_gems.runtime.backend.device")
def choice(module: Any, patch: Patch) -> str:
    """Vendors are known by modules of torch and by commands of the system."""

    @patch(module.DeviceDetector, "get_vendor", takes="self vendor_name")
    def get_vendor(original: Any, self: Any, vendor_name: str | None = None) -> Any:
        named = os.environ.get("GEMS_VENDOR") in self.vendor_list
        return original(self, vendor_name) if named else module.backend.get_vendor_info(VENDOR)

    return f"tensors are on {_backend.device}"


@integration.after("flag_gems.utils.libentry")
def launches(module: Any, patch: Patch) -> str:
    """From Triton 3.3 on a compiled kernel takes its constants too; FlagGems passes them until 3.6."""
    patch.value(module, "minor_version", lambda minor: min(minor, 6) if module.major_version == 3 else minor)
    return "launches by Triton 3.7 and newer"


integration.words(
    f"operators take tensors of {_backend.device}",
    "flag_gems.ops._safe_softmax: _safe_softmax",
    "flag_gems.ops._upsample_nearest_exact1d: _launch_upsample_nearest_exact1d_kernel",
    "flag_gems.ops.arcsinh: _ensure_cuda_tensor",
    "flag_gems.ops.fill: fill_tensor fill_tensor_out fill_tensor_",
    "flag_gems.ops.hadamard_transform: _hadamard_transform_fwd",
    "flag_gems.ops.i0_: i0_",
    "flag_gems.ops.lift_fresh_copy: lift_fresh_copy lift_fresh_copy_out",
    "flag_gems.ops.one_hot: one_hot",
    "flag_gems.ops.prelu: prelu",
    "flag_gems.ops.reflection_pad2d: launch_reflection_pad2d",
    "flag_gems.ops.select_backward: _launch_select_backward",
    "flag_gems.ops.soft_margin_loss: _check_tensors soft_margin_loss_out",
    "flag_gems.ops.special_i0e: _run_special_i0e_kernel",
    "flag_gems.ops.special_i1: _launch_special_i1",
    "flag_gems.ops.t_copy: _launch_t_copy_kernel",
    "flag_gems.ops.upsample_bicubic2d: upsample_bicubic2d",
    "flag_gems.ops.zero: _launch_zero_kernel",
    "flag_gems.fused.swiglu: swiglu",
    is_cuda=f"is_{_backend.device}",
)
integration.words(
    f"operators make tensors on {_backend.device}",
    "flag_gems.ops.flash_api: mha_fwd",
    "flag_gems.ops.fmin: _prepare_inputs",
    "flag_gems.ops.group_gemm: supports_tma group_gemm group_mm",
)


def _put(patch: Patch, name: str, **values: Any) -> None:
    module = ModuleType(name)
    vars(module).update(values)
    sys.modules[name] = module

    def forget() -> None:
        del sys.modules[name]

    patch.also(forget)


def _distinct(configurations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that differ in more than warps and stages, which a kernel of the dialect does not have."""
    found: dict[str, dict[str, Any]] = {}
    for one in configurations:
        if one.get("gen"):
            sources = [one["param_map"].get(name) for name in ("num_warps", "num_stages")]
            one = {key: value[:1] if key in sources else value for key, value in one.items()}
        found.setdefault(json.dumps(one.get("META", one), sort_keys=True), one)
    return list(found.values())
