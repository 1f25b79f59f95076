"""The rules for what objects have: ``x.cuda()``, ``x.is_cuda``, ``use_cuda=`` of a profile."""

from __future__ import annotations

import ast

from torch_backplane.port.findings import Findings
from torch_backplane.port.names import PROFILE_NAMES
from torch_backplane.port.source import Edit

__all__ = ["defines_cuda", "port_attribute", "port_cuda_call", "port_use_cuda"]


def defines_cuda(node: ast.AST) -> bool:
    """Whether a class here has a method ``cuda`` of its own."""
    return isinstance(node, ast.ClassDef) and any(
        isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name == "cuda" for part in node.body
    )


def port_cuda_call(findings: Findings, call: ast.Call, own_method: bool) -> None:
    """``x.cuda(...)``: the device's method of the same arguments, or ``to``."""
    function = call.func
    if not isinstance(function, ast.Attribute) or findings.tree.dotted(function):
        return  # of an imported module
    if own_method:
        findings.leave(call, "this file has a class with a method cuda of its own, which may be the one that is called")
        return
    if findings.target.device:
        findings.replace_exactly(call, [findings.tail(function, findings.target.device)])
        return
    torch, opening = findings.torch(call), findings.source.opening(call)
    if torch is None:
        return
    device = next((keyword.value for keyword in call.keywords if keyword.arg == "device"), None)
    device = call.args[0] if call.args else device
    if opening is None or isinstance(device, ast.Starred) or any(keyword.arg is None for keyword in call.keywords):
        findings.leave(call, "its arguments cannot be told: write to(device)")
        return
    edits = [findings.tail(function, "to")]
    if device is None:
        text = findings.target.text(torch)
        edits.append(Edit(opening, opening, f"{text}, " if call.keywords else text))
    else:  # a number, a device or a text; torch.device refuses None, which to() would take for the CPU
        start, end = findings.source.start(device), findings.source.end(device)
        edits += [Edit(start, start, f"{torch}.device("), Edit(end, end, ")")]
    findings.replace_exactly(call, edits)


def port_attribute(findings: Findings, node: ast.Attribute) -> None:
    """An attribute of any object."""
    if node.attr in PROFILE_NAMES and isinstance(node.ctx, ast.Load):
        findings.replace_exactly(node, [findings.tail(node, PROFILE_NAMES[node.attr])])
    elif node.attr == "is_cuda" and not findings.tree.dotted(node):
        if not isinstance(node.ctx, ast.Load):
            findings.leave(node, "sets the attribute of an object of the program's own")
        elif findings.target.device:
            findings.replace_exactly(node, [findings.tail(node, f"is_{findings.target.device}")])
        elif (torch := findings.torch(node)) is not None:
            tail = findings.tail(node, f"device.type == {findings.target.text(torch)})")
            start = findings.source.start(node)
            findings.replace_exactly(node, [Edit(start, start, "("), tail])


def port_use_cuda(findings: Findings, keyword: ast.keyword) -> None:
    """``torch.autograd.profiler.profile(use_cuda=True)``."""
    call = findings.tree.parents[keyword]
    name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else name
    if name != "profile" or not isinstance(call, ast.Call):
        return
    value = keyword.value
    if not isinstance(value, ast.Constant) or value.value is not True:
        findings.leave(call, "use_cuda= is given up by torch: write use_device= and the device's type")
        return
    torch = findings.torch(call)
    if torch is None:
        return
    end = findings.source.end(value)
    start = findings.source.offset(keyword.lineno, keyword.col_offset)
    if findings.source.segment(start, end).replace(" ", "") != "use_cuda=True":
        findings.leave(call, "use_cuda= is given up by torch: write use_device= and the device's type")
        return
    findings.replace(call, [Edit(start, end, f"use_device={findings.target.text(torch)}")])
