"""The rules for names of ``torch.cuda``: chains of attributes, and imports with the uses of what they bind."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from backplane_tools.port.amp import amp_edits
from backplane_tools.port.findings import Findings
from backplane_tools.port.names import (
    ACCELERATOR,
    AMP,
    MODULES,
    SUBMODULES,
    TORCH,
    WITHOUT_CUDA,
    reason_to_leave,
    unsupported,
)
from backplane_tools.port.source import Edit

_UNSUPPORTED = unsupported()
_SEVERAL = "this name is bound in several ways: import it from torch.amp, torch.accelerator or the device's module"


@dataclass(frozen=True)
class Member:
    """Where a name of torch.cuda is found: ``module``, an expression, and ``name`` in it; or why nowhere."""

    module: str = ""
    name: str = ""
    reason: str = ""


def member(findings: Findings, path: list[str], call: ast.Call | None, torch: str = "torch") -> Member:
    """The counterpart of the first name of ``torch.cuda.<path>``, or of two in a module; on a name for torch."""
    target = findings.target
    if path[0] == "amp":
        if len(path) == 1:
            return Member(torch, "amp")
        if path[-1] in AMP:
            return Member(f"{torch}.amp", path[-1])
        return Member(reason="private to CUDA's module: torch.amp has autocast, GradScaler, custom_fwd, custom_bwd")
    if known := reason_to_leave(".".join(["torch.cuda", *path])):
        return Member(reason=known[0])
    if path[0] in SUBMODULES and len(path) > 1:
        path = path[1:]
    name = path[0]
    if name in ACCELERATOR and not (call and call.keywords):
        return Member(f"{torch}.accelerator", ACCELERATOR[name])
    if name in TORCH:
        return Member(torch, TORCH[name])
    if not target.device and name in ("Stream", "Event") and not (call and len(call.args) > (name == "Stream")):
        return Member(torch, name)
    if name in _UNSUPPORTED:
        return Member(reason=_UNSUPPORTED[name])
    if name.startswith("_"):
        return Member(reason="private to CUDA's module")
    if name in MODULES and len(path) > 1:
        return Member(f"{target.module(torch)}.{name}", path[1])
    return Member(target.module_or_cuda(torch) if name in WITHOUT_CUDA else target.module(torch), name)


def port_chain(findings: Findings, node: ast.Attribute) -> None:
    """A whole chain of attributes on an imported name."""
    dotted, root = findings.tree.dotted(node), findings.tree.root(node)
    parts = dotted.split(".")
    if parts[-2:] == ["ProfilerActivity", "CUDA"]:
        port_activity(findings, node)
    elif parts[0] == "torch" and parts[-1] == "cuda" and parts[-2][:1].isupper():  # torch.Tensor.cuda
        if findings.target.device:
            findings.replace(node, [findings.tail(node, findings.target.device)])
        else:
            findings.leave(
                node, "the method of a class: call to(device=...) of the object, or name the device by --device"
            )
    elif parts[:2] != ["torch", "cuda"]:
        known, imported = reason_to_leave(dotted), reason_to_leave(root)
        if known and not (imported and imported[1]):  # then the import is listed
            findings.leave(node, *known)
    elif "." not in root and isinstance(node.ctx, ast.Load):
        port_member(findings, node, parts[2:])
    elif "." not in root:
        findings.leave(node, "sets a name in CUDA's module")


def port_member(findings: Findings, node: ast.Attribute, path: list[str]) -> None:
    """``torch.cuda.<path>``, on the program's own name for torch."""
    tree, target = findings.tree, findings.target
    root = findings.torch(node)
    if root is None:
        return
    if not path:
        findings.replace(node, [findings.whole(node, target.module(root))])
        return
    depth = 1 + (path[0] in MODULES and len(path) > 1)
    if path[0] == "amp":
        depth = len(path)
    part: ast.expr = node
    for _ in range(len(path) - depth):
        assert isinstance(part, ast.Attribute)
        part = part.value
    assert isinstance(part, ast.Attribute)
    parent = tree.parents[part]
    call = parent if isinstance(parent, ast.Call) and parent.func is part else None
    found = member(findings, path, call, root)
    if found.reason:
        findings.leave(node, found.reason)
        return
    edits = [findings.whole(part, f"{found.module}.{found.name}")]
    if path[0] == "amp" and path[-1] in AMP:
        more = amp_edits(findings, part, path[-1], root)
        if isinstance(more, str):
            findings.leave(node, more)
            return
        findings.replace(call or part, [*edits, *more])
        return
    findings.replace(part, edits)


def port_activity(findings: Findings, node: ast.Attribute) -> None:
    """``ProfilerActivity.CUDA``; without a device's name the pair with CPU becomes what this machine supports."""
    tree = findings.tree
    if findings.target.device:
        findings.replace(node, [findings.tail(node, "PrivateUse1")])
        return
    around = tree.parents[node]
    if isinstance(around, (ast.List, ast.Tuple, ast.Set)) and len(around.elts) == 2:
        names = sorted(tree.dotted(element).rpartition("ProfilerActivity.")[2] for element in around.elts)
        root = tree.torch_at(around)
        if names == ["CPU", "CUDA"] and root and "#" not in findings.source.of(around):
            start, end = findings.source.start(around), findings.source.end(around)
            findings.replace(around, [Edit(start, end, f"{root}.profiler.supported_activities()")])
            return
    findings.leave(node, "no name for all devices: leave activities= out, which records what there is, or use --device")


def port_import(findings: Findings, statement: ast.Import | ast.ImportFrom) -> None:
    """An import from torch.cuda, with all uses of what it binds: they change together, or none does."""
    if isinstance(statement, ast.ImportFrom):
        if statement.level or not statement.module:
            return
        full = [f"{statement.module}.{alias.name}" for alias in statement.names]
    else:
        full = [alias.name for alias in statement.names]
    if not any(_of_cuda(name) for name in full):
        reasons = [known[0] for name in full if (known := reason_to_leave(name)) and known[1]]
        if reasons:
            findings.leave(statement, reasons[0])
        return
    kept: dict[str, list[str]] = {}
    plain: list[str] = []
    uses: list[tuple[ast.expr, list[Edit]]] = []
    problem = "" if "#" not in findings.source.of(statement) else "it contains a comment: replace it by hand"
    for alias, name in zip(statement.names, full, strict=True):
        if isinstance(statement, ast.Import) and not alias.asname:
            plain.append(_plain(name))
            problem = problem or (_without_module(findings, name.split(".")[2:]) if _of_cuda(name) else "")
            continue
        found = _bound(findings, alias, name, uses)
        problem = problem or found.reason
        if not found.reason:
            local = alias.asname or alias.name
            kept.setdefault(found.module, []).append(found.name + (f" as {local}" if local != found.name else ""))
    if problem:
        findings.leave(statement, problem)
        return
    lines = [f"import {', '.join(dict.fromkeys(plain))}"] if plain else []
    lines += [f"from {module} import {', '.join(names)}" for module, names in kept.items()]
    start, end = findings.source.start(statement), findings.source.end(statement)
    findings.replace(statement, [Edit(start, end, _between(findings, statement).join(lines))])
    for node, edits in uses:
        if edits:
            findings.replace(node, edits)


def _between(findings: Findings, statement: ast.stmt) -> str:
    """What separates two statements in one's place: a line end and its indentation, where it begins its line."""
    source = findings.source
    start = source.start(statement)
    before = source.segment(start - statement.col_offset, start)
    return source.newline + before if not before.strip() else "; "


def _of_cuda(name: str) -> bool:
    return name == "torch.cuda" or name.startswith("torch.cuda.")


def _plain(name: str) -> str:
    """``import torch.cuda.amp``, which binds torch alone."""
    if name.startswith("torch.cuda.amp"):
        return "torch.amp"
    return "torch" if _of_cuda(name) else name


def _without_module(findings: Findings, path: list[str]) -> str:
    """Why the module of ``torch.cuda`` that a path begins with has no counterpart; empty if it has one."""
    if not path or path[0] == "amp" or path[0] in MODULES:
        return ""
    return member(findings, path, None).reason or "a module of torch.cuda that the device's module has not"


def _bound(findings: Findings, alias: ast.alias, name: str, uses: list[tuple[ast.expr, list[Edit]]]) -> Member:
    """What one name of an import becomes, and the edits of its uses."""
    tree, target = findings.tree, findings.target
    local = alias.asname or alias.name
    if not _of_cuda(name):
        module, _, last = name.rpartition(".")
        return Member(module, last)
    if alias.name == "*":
        return Member(reason="binds all names of the module: import what is used")
    if tree.dotted(ast.Name(local, ast.Load())) != name:
        return Member(reason=_SEVERAL)
    path = name.split(".")[2:]
    if not path or (len(path) == 1 and path[0] in MODULES):
        if not target.device:
            return Member(reason="binds CUDA's module: write torch.accelerator or torch.get_device_module() at uses")
        module, _, own = ".".join(["torch", target.device, *path]).rpartition(".")
        return Member(module, own, _lacking(findings, local, path))
    if len(path) > 1 and (reason := _without_module(findings, path)):
        return Member(reason=reason)
    found = member(findings, path, None)
    if found.reason or "(" in found.module:
        return Member(reason=found.reason or f"write {found.module}.{found.name} at its uses")
    for node in tree.nodes:
        if isinstance(node, ast.Name) and node.id == local and isinstance(node.ctx, ast.Load):
            used = _use(findings, node, path)
            if isinstance(used, str):
                return Member(reason=used)
            uses.append(used)
    return found


def _lacking(findings: Findings, local: str, path: list[str]) -> str:
    """Why a use of a bound module cannot be one of the device's: a public name that this has not."""
    tree = findings.tree
    for node in tree.nodes:
        if not isinstance(node, ast.Name) or node.id != local:
            continue
        names = []
        for _, parent in tree.ancestors(node):
            if not isinstance(parent, ast.Attribute):
                break
            names.append(parent.attr)
        reason = member(findings, [*path, *names], None).reason if names and names[0][0] != "_" else ""
        if reason:
            return f"binds CUDA's module, and a use of it, {'.'.join([local, *names])}: {reason}"
    return ""


def _use(findings: Findings, name: ast.Name, path: list[str]) -> tuple[ast.expr, list[Edit]] | str:
    """The edits of one use of a bound name, or why it cannot be converted."""
    tree = findings.tree
    part: ast.expr = name
    if path == ["amp"]:
        parent = tree.parents[name]
        if not isinstance(parent, ast.Attribute) or parent.attr not in AMP:
            return "a use of it is not one of torch.amp's names"
        part, path = parent, ["amp", parent.attr]
    if path[0] != "amp":
        parent = tree.parents[name]
        if path[0] in ACCELERATOR and isinstance(parent, ast.Call) and parent.func is name and parent.keywords:
            return f"torch.accelerator.{ACCELERATOR[path[0]]} takes no keyword arguments: a use of it has one"
        return part, []
    root = tree.torch_at(name) or ("torch" if findings.target.device else None)
    if root is None:
        return "torch is not imported where it is used: import it, or name the device by --device"
    edits = amp_edits(findings, part, path[-1], root)
    if isinstance(edits, str):
        return edits
    parent = tree.parents[part]
    return (parent if isinstance(parent, ast.Call) and parent.func is part else part), edits
