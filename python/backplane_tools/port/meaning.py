"""Whether a text such as "cuda" is a device, by the names around it."""

from __future__ import annotations

import ast
import re

from backplane_tools.port.names import AMP
from backplane_tools.port.tree import Tree, last_name

_DEVICE = re.compile(r"device|accelerator|map_location|(^|_)dev(_|$)", re.IGNORECASE)
_BACKEND = re.compile(r"backend|process_group|new_group|comm", re.IGNORECASE)
_TAKE_DEVICE = {"to", "Generator", "DeviceMesh", "cuda", "load"} | AMP
_PASS_ON = (
    ast.IfExp, ast.BoolOp, ast.List, ast.Tuple, ast.Set, ast.Starred, ast.FormattedValue, ast.JoinedStr, ast.BinOp,
)  # fmt: skip


def is_statement(tree: Tree, node: ast.expr) -> bool:
    """A text by itself: documentation."""
    return isinstance(tree.parents.get(node), ast.Expr)


def is_backend(tree: Tree, node: ast.expr) -> bool:
    """Whether "nccl" here is a backend of torch.distributed."""
    return _used_as(tree, node, _BACKEND)


def is_device(tree: Tree, node: ast.expr) -> bool:
    """Whether "cuda" here is a type of device."""
    return _used_as(tree, node, _DEVICE)


def is_amp(tree: Tree, node: ast.expr) -> bool:
    """Whether "cuda" here is an argument of torch.amp's, by itself."""
    parent = tree.parents.get(node)
    call = tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    return isinstance(call, ast.Call) and last_name(call.func) in AMP


def is_fallback(tree: Tree, node: ast.expr) -> bool:
    """Whether "cuda" here is for a machine without an accelerator: ``current_accelerator() or "cuda"``."""
    parent = tree.parents.get(node)
    first = parent.values[0] if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or) else None
    return isinstance(first, ast.Call) and last_name(first.func) == "current_accelerator"


def _used_as(tree: Tree, node: ast.expr, named: re.Pattern[str]) -> bool:
    for child, parent in tree.ancestors(node):
        if isinstance(parent, ast.IfExp) and (child is parent.test or _asks_for_cuda(tree, parent.test)):
            return child is not parent.test
        if isinstance(parent, ast.Dict):
            if any(child is key for key in parent.keys):
                return any(_text(key) in ("cpu", "mps", "gloo") for key in parent.keys)
            key = parent.keys[next(i for i, value in enumerate(parent.values) if value is child)]
            if named.search(_text(key)):
                return True
            continue
        if isinstance(parent, _PASS_ON):
            continue
        return _said_by(tree, child, parent, named)
    return False


def _said_by(tree: Tree, child: ast.AST, parent: ast.AST, named: re.Pattern[str]) -> bool:
    """By the first construct that uses the value."""
    if isinstance(parent, ast.keyword):
        if named.search(parent.arg or ""):
            return True
        call = tree.parents[parent]
        if not isinstance(call, ast.Call):
            return False
        if parent.arg == "type" and named.search(last_name(call.func)):  # torch.device(type="cuda", index=0)
            return True
        return _of_cuda(tree, call) or _other_texts_say(call, child, named)
    if isinstance(parent, ast.Call):
        return _argument_says(tree, child, parent, named)
    if isinstance(parent, ast.Compare):
        others = [other for other in [parent.left, *parent.comparators] if other is not child]
        return any(_expression_says(other, named) for other in others)
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension)):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return any(_expression_says(target, named) for target in targets)
    if isinstance(parent, ast.arguments):
        return bool(named.search(_parameter(parent, child)))
    if isinstance(parent, ast.Return):
        functions = tree.functions(parent)
        return bool(functions and named.search(getattr(functions[0], "name", "")))
    if isinstance(parent, ast.MatchValue):
        match = next((up for _, up in tree.ancestors(parent) if isinstance(up, ast.Match)), None)
        return match is not None and _expression_says(match.subject, named)
    return False


def _argument_says(tree: Tree, child: ast.AST, call: ast.Call, named: re.Pattern[str]) -> bool:
    function = last_name(call.func)
    if function in ("str", "print"):
        grand = tree.parents[call]
        return function == "str" and _said_by(tree, call, grand, named)
    if function in ("hasattr", "getattr", "setattr", "delattr"):
        return False
    if named.search(function) or _of_cuda(tree, call):
        return True
    if named is _DEVICE and function in _TAKE_DEVICE:
        return True
    if function in ("startswith", "endswith", "split", "count") and isinstance(call.func, ast.Attribute):
        return _expression_says(call.func.value, named)
    return _other_texts_say(call, child, named)


def _other_texts_say(call: ast.Call, child: ast.AST, named: re.Pattern[str]) -> bool:
    """``add_argument("--device", default="cuda")``, ``environ.get("DEVICE", "cuda")``."""
    return any(named.search(_text(argument)) for argument in call.args if argument is not child)


def _of_cuda(tree: Tree, call: ast.Call) -> bool:
    return tree.dotted(call.func).startswith("torch.cuda.")


def _asks_for_cuda(tree: Tree, test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and tree.dotted(node) == "torch.cuda.is_available" for node in ast.walk(test)
    )


def _expression_says(node: ast.expr, named: re.Pattern[str]) -> bool:
    """The last name of an expression is a device's: ``x.device.type``, ``config["device"]``, ``str(device)``."""
    if isinstance(node, ast.Name):
        return bool(named.search(node.id))
    if isinstance(node, ast.Attribute):
        return bool(named.search(node.attr)) or (node.attr == "type" and _expression_says(node.value, named))
    if isinstance(node, ast.Subscript):
        return bool(named.search(_text(node.slice))) or _expression_says(node.value, named)
    if isinstance(node, ast.Call):
        return _expression_says(node.func, named) or any(_expression_says(argument, named) for argument in node.args)
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(_expression_says(element, named) for element in node.elts)
    return False


def _parameter(arguments: ast.arguments, default: ast.AST) -> str:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    pairs += [(name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return next((name.arg for name, value in pairs if value is default), "")


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
