"""The rules for texts: ``"cuda"``, ``"cuda:0"``, ``f"cuda:{i}"``, ``"nccl"``, names of variables and of profiles.

And for type comments, which TorchScript and type checkers read: one that names CUDA is left.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize

from backplane_tools.port.findings import Findings
from backplane_tools.port.meaning import is_amp, is_backend, is_device, is_fallback, is_statement
from backplane_tools.port.names import PROFILE_NAMES
from backplane_tools.port.source import Edit

_INDEXED = re.compile(r"cuda:(\d+|%[ds]|\{\w*\})?")
_OPENING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")
_VARIABLE = re.compile(r"[A-Z0-9_]*(CUDA|NCCL)_[A-Z0-9_]+")
_PLAIN = "put together of parts or with escapes: replace it by hand"
_MEANING = "a text whose use does not say whether it is the device: if so, write the device's type"
_TYPE_COMMENT = re.compile(r"#\s*type:(?!\s*ignore\b)[^#\n]*\btorch\.cuda\b")
_PATTERN = "a pattern takes no expression: compare by if, or name the device by --device"


def port_text(findings: Findings, node: ast.Constant) -> None:
    """A text that is no part of an f-string."""
    tree, target, value = findings.tree, findings.target, _value(node)
    if is_statement(tree, node) or is_fallback(tree, node) or isinstance(tree.parents.get(node), ast.JoinedStr):
        return
    if _INDEXED.fullmatch(value):
        _device(findings, node)
    elif value == "cuda":
        if is_device(tree, node):
            _device(findings, node)
        else:
            findings.leave(node, _MEANING)
    elif value == "nccl":
        if not is_backend(tree, node):
            findings.leave(node, "a text whose use does not say whether it is a backend of torch.distributed")
        elif (torch := findings.torch(node)) is not None:
            _put(findings, node, target.process_group(torch, _whole(findings, node) or ""))
    elif "cuda:nccl" in value:
        if target.device:
            _inner(findings, node, "cuda:nccl", f"{target.device}:{target.device}ccl")
        else:
            findings.leave(node, "leave backend= out: each device has its own then; or use --device")
    elif value in PROFILE_NAMES:
        _inner(findings, node, value, PROFILE_NAMES[value])
    elif value == "CUDA_VISIBLE_DEVICES":
        if target.device:
            _inner(findings, node, "CUDA", target.device.upper())
        else:
            findings.leave(node, "each device has its own variable, such as MYDEVICE_VISIBLE_DEVICES: use --device")
    elif _VARIABLE.fullmatch(value):
        findings.leave(node, "a variable of CUDA's or NCCL's: without effect on another device", counts=False)
    elif value.startswith("torch.cuda."):
        findings.leave(node, "a name in CUDA's module as a text: write dtype= and device=, or the name on the device")


def port_fstring(findings: Findings, node: ast.JoinedStr) -> None:
    """``f"cuda:{i}"``; a "cuda:" that is not its beginning is prose."""
    first = node.values[0] if node.values else None
    if not isinstance(first, ast.Constant) or not str(first.value).startswith("cuda:"):
        return
    text = findings.source.of(node)
    opening = _OPENING.match(text)
    if opening is None or not text.startswith("cuda:", opening.end()):
        findings.leave(node, _PLAIN)
        return
    start = findings.source.start(node) + len(text[: opening.end()].encode())
    if findings.target.device:
        findings.replace(node, [Edit(start, start + 4, findings.target.device)])
    elif (torch := findings.torch(node)) is not None:
        findings.replace(node, [Edit(start, start + 4, "{" + findings.target.current(torch) + "}")])


def _value(node: ast.Constant) -> str:
    assert isinstance(node.value, str)
    return node.value


def _device(findings: Findings, node: ast.Constant) -> None:
    if findings.target.device:
        _inner(findings, node, "cuda", findings.target.device)
        return
    if isinstance(findings.tree.parents.get(node), ast.MatchValue):
        findings.leave(node, _PATTERN)
        return
    torch = findings.torch(node)
    if torch is None:
        return
    if _value(node) == "cuda":
        target, cuda = findings.target, findings.source.of(node)
        _put(findings, node, target.amp_text(torch, cuda) if is_amp(findings.tree, node) else target.text(torch))
        return
    rest = _value(node)[len("cuda") :].replace("{", "{{").replace("}", "}}")
    quote = _whole(findings, node)
    if quote is None:
        findings.leave(node, _PLAIN)
    else:
        _put(findings, node, f"f{quote}{{{findings.target.current(torch)}}}{rest}{quote}")


def _whole(findings: Findings, node: ast.Constant) -> str | None:
    """The quote of a text that is one token and is written as it reads."""
    text = findings.source.of(node)
    opening = _OPENING.match(text)
    if opening is None or text[opening.end() :] != _value(node) + opening[2]:
        return None
    return opening[2]


def _put(findings: Findings, node: ast.Constant, new: str) -> None:
    """In the place of the whole text."""
    if _whole(findings, node) is None:
        findings.leave(node, _PLAIN)
        return
    start, end = findings.source.start(node), findings.source.end(node)
    around = findings.source.segment(start - 1, start) if start else ""
    findings.replace(node, [Edit(start, end, f" {new}" if around.isalnum() else new)])  # else"cuda"


def _inner(findings: Findings, node: ast.Constant, old: str, new: str) -> None:
    """Within the quotes, which stay."""
    if _whole(findings, node) is None:
        findings.leave(node, _PLAIN)
        return
    text = findings.source.of(node)
    start = findings.source.start(node) + len(text[: text.index(old, text.index(_value(node)))].encode())
    findings.replace(node, [Edit(start, start + len(old.encode()), new)])


def port_type_comments(findings: Findings) -> None:
    """``x = []  # type: List[torch.cuda.FloatTensor]``."""
    text = findings.source.text
    if not _TYPE_COMMENT.search(text):
        return
    lines = io.StringIO(re.sub(r"\r\n|\r", "\n", text))
    for token in tokenize.generate_tokens(lines.readline):
        if token.type == tokenize.COMMENT and _TYPE_COMMENT.match(token.string):
            line, column = token.start
            findings.leave_text(line, column + 1, token.string, "a type in a comment: write the device's by hand")
