"""The rules for what objects have: ``x.cuda()``, ``x.is_cuda``, ``use_cuda=`` of a profile."""

from __future__ import annotations

import ast
import re

from backplane_tools.port.findings import Findings
from backplane_tools.port.names import ATTRIBUTES, PROFILE_NAMES
from backplane_tools.port.source import Edit
from backplane_tools.port.tree import Tree, last_name

# of a tensor's cuda, in this order; its to has another
_ARGUMENTS = ("device", "non_blocking")

# Calls that give a device's number, and not None.
_GIVE_NUMBER = set(
    "int len min max index get_rank get_local_rank get_node_local_rank get_device current_device device_count".split()
)
_IMPORTED = "an imported object, which may be torch's or not"
_SETTINGS = re.compile(r"arg|opt|conf|cfg|param|flag|setting", re.IGNORECASE)
_CONDITIONS = (ast.If, ast.While, ast.IfExp, ast.Assert, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.comprehension)


def defines_cuda(node: ast.AST) -> bool:
    """Whether this is a class that defines a method ``cuda``."""
    return isinstance(node, ast.ClassDef) and any(
        isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name == "cuda" for part in node.body
    )


def port_cuda_call(findings: Findings, call: ast.Call, own_method: bool) -> None:
    """``x.cuda(...)``: the device's method of the same arguments, or ``to``."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return
    dotted = findings.tree.dotted(function)
    if dotted.startswith("torch.") or dotted.count(".") == 1:
        return  # a method by its class, or a module's function
    if own_method:
        findings.leave(call, "this file has a class with a method cuda, which may be the one that is called")
    elif dotted:
        findings.leave(call, _IMPORTED)
    elif findings.target.device:
        findings.replace(call, [findings.tail(function, findings.target.device)])
    else:
        _to(findings, call, function)


def _to(findings: Findings, call: ast.Call, function: ast.Attribute) -> None:
    """By keyword, as a storage's ``to`` takes its arguments; a tensor's, a module's and a packed sequence's do, too."""
    source = findings.source
    torch, opening = findings.torch(call), source.opening(call)
    if torch is None:
        return
    known = all(keyword.arg for keyword in call.keywords) and len(call.args) <= len(_ARGUMENTS)
    keywords = source.by_keyword(call, opening, _ARGUMENTS) if opening is not None and known else None
    if opening is None or keywords is None or any(isinstance(argument, ast.Starred) for argument in call.args):
        findings.leave(call, "its arguments are not known: write to(device=...)")
        return
    device = next((keyword.value for keyword in call.keywords if keyword.arg == "device"), None)
    device = call.args[0] if call.args else device
    value: list[Edit] | None
    if device is None:
        value = [Edit(opening, opening, f"device={findings.target.text(torch)}{', ' if call.keywords else ''}")]
    else:
        value = _device(findings, device, torch)
    if value is None:
        findings.leave(call, "None is CUDA's current device, and this may give it: put it into a variable first")
    else:
        findings.replace(call, [findings.tail(function, "to"), *keywords, *value])


def _device(findings: Findings, node: ast.expr, torch: str) -> list[Edit] | None:
    """Edits of a device or its number; None if it may be None: CUDA's current device, where ``to`` moves nothing."""
    source, text = findings.source, findings.target.text(torch)
    start, end = source.start(node), source.end(node)
    if isinstance(node, ast.Constant) and node.value is None:
        return [Edit(start, end, text)]
    made = isinstance(node, ast.Call) and findings.tree.dotted(node.func) == "torch.device"
    if made or isinstance(node, (ast.Constant, ast.JoinedStr)):
        return []
    if _may_stand_twice(node) and "#" not in source.of(node):
        return [Edit(start, start, f"{text} if {source.of(node)} is None else ")]
    if _gives_number(node):  # torch.device refuses None all the same
        return [Edit(start, start, f"{torch}.device("), Edit(end, end, ")")]
    return None


def _gives_number(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _gives_number(node.body) and _gives_number(node.orelse)
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.Or) and _gives_number(node.values[-1])
    if isinstance(node, ast.Constant):
        return node.value is not None
    return isinstance(node, ast.BinOp) or (isinstance(node, ast.Call) and last_name(node.func) in _GIVE_NUMBER)


def _may_stand_twice(node: ast.expr) -> bool:
    """A name, or a chain of attributes and items, which no rule changes within."""
    kinds = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.UnaryOp, ast.unaryop, ast.expr_context)
    return all(
        isinstance(part, kinds) and not (isinstance(part, ast.Constant) and "cuda" in str(part.value))
        for part in ast.walk(node)
    )


def port_attribute(findings: Findings, node: ast.Attribute) -> None:
    """An attribute of any object."""
    tree = findings.tree
    if node.attr in PROFILE_NAMES and isinstance(node.ctx, ast.Load):
        findings.replace(node, [findings.tail(node, PROFILE_NAMES[node.attr])])
    elif node.attr in ATTRIBUTES:
        if not tree.sets(node.attr):
            findings.leave(node, ATTRIBUTES[node.attr])
    elif tree.dotted(node).startswith("torch."):
        return
    elif node.attr == "cuda":
        if _is_method(tree, node):
            findings.leave(node, "the method itself, which is called elsewhere: call to(device=...) there")
    elif node.attr == "is_cuda" and tree.dotted(node).count(".") != 1:
        if tree.dotted(node):
            findings.leave(node, _IMPORTED)
        elif not isinstance(node.ctx, ast.Load):
            findings.leave(node, "sets the attribute of one of the program's objects")
        elif findings.target.device:
            findings.replace(node, [findings.tail(node, f"is_{findings.target.device}")])
        elif (torch := findings.torch(node)) is not None:
            tail = findings.tail(node, f"device.type == {findings.target.text(torch)})")
            start = findings.source.start(node)
            findings.replace(node, [Edit(start, start, "("), tail])


def _is_method(tree: Tree, node: ast.Attribute) -> bool:
    """Whether ``x.cuda`` may be a tensor's or a module's method that is not called here; a setting is none."""
    parent = tree.parents[node]
    if isinstance(parent, (ast.Attribute, ast.FormattedValue, *_CONDITIONS)) or tree.sets("cuda"):
        return False
    called = isinstance(parent, ast.Call) and parent.func is node
    return not called and not tree.dotted(node) and not _SETTINGS.search(last_name(node.value))


def port_use_cuda(findings: Findings, keyword: ast.keyword) -> None:
    """``torch.autograd.profiler.profile(use_cuda=True)``."""
    call = findings.tree.parents[keyword]
    if not isinstance(call, ast.Call) or last_name(call.func) != "profile":
        return
    start = findings.source.offset(keyword.lineno, keyword.col_offset)
    end = findings.source.end(keyword.value)
    if findings.source.segment(start, end).replace(" ", "") != "use_cuda=True":
        findings.leave(call, "torch has removed use_cuda=: write use_device= and the device's type")
        return
    torch = findings.torch(call)
    if torch is None:
        return
    findings.replace(call, [Edit(start, end, f"use_device={findings.target.text(torch)}")])
