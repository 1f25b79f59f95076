"""The names of torch.amp take the device's type, those of ``torch.cuda.amp`` do not: adds it to calls."""

from __future__ import annotations

import ast

from backplane_tools.port.findings import Findings
from backplane_tools.port.source import Edit

# of torch.cuda.amp.autocast, in this order; torch.amp's has another
_AUTOCAST = ("enabled", "dtype", "cache_enabled")


def amp_edits(findings: Findings, function: ast.expr, name: str, torch: str) -> list[Edit] | str:
    """Edits of a use of ``torch.cuda.amp.<name>`` beside the name itself; a text: why there are none."""
    tree, source = findings.tree, findings.source
    device = findings.target.amp_text(torch)
    parent = tree.parents[function]
    call = parent if isinstance(parent, ast.Call) and parent.func is function else None
    custom = name in ("custom_fwd", "custom_bwd")
    if call is None:
        if custom and isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and function in parent.decorator_list:
            return [Edit(source.end(function), source.end(function), f"(device_type={device})")]
        return [] if name == "GradScaler" else "not called here: torch.amp's takes the device's type as well"
    opening = source.opening(call)
    if opening is None or any(isinstance(argument, ast.Starred) for argument in call.args):
        return "its arguments are not known: torch.amp's takes the device's type first"
    if custom:
        if call.args:
            return "the function is an argument here: write it as a decorator, with device_type="
        return [_first(call, opening, f"device_type={device}")]
    edits = [_first(call, opening, device)]
    if name == "autocast":
        if len(call.args) > len(_AUTOCAST):
            return "it has too many arguments"
        keywords = source.by_keyword(call, opening, _AUTOCAST)
        if keywords is None:
            return "its arguments have parentheses or comments: torch.amp's takes enabled= by keyword"
        edits += keywords
    return edits


def port_grad_scaler(findings: Findings, call: ast.Call) -> None:
    """``torch.amp.GradScaler()`` without a device is one for CUDA."""
    if call.args or any(keyword.arg in ("device", None) for keyword in call.keywords):
        return
    torch, opening = findings.torch(call), findings.source.opening(call)
    if torch is not None and opening is not None:
        findings.replace(call, [_first(call, opening, findings.target.amp_text(torch))])


def _first(call: ast.Call, opening: int, text: str) -> Edit:
    return Edit(opening, opening, f"{text}, " if call.args or call.keywords else text)
