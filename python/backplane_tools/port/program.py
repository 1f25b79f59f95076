"""One file: every rule on every node, then the text with all edits, which still parses."""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass, replace

from backplane_tools.port.amp import port_grad_scaler
from backplane_tools.port.findings import Findings
from backplane_tools.port.methods import defines_cuda, port_attribute, port_cuda_call, port_use_cuda
from backplane_tools.port.modules import port_chain, port_import
from backplane_tools.port.source import Place, Source
from backplane_tools.port.target import Target
from backplane_tools.port.texts import port_fstring, port_text, port_type_comments
from backplane_tools.port.tree import Tree

# Most files of a project name none of these, and need no tree.
_MAY_NAME_CUDA = re.compile(rb"cuda|nccl|GradScaler", re.IGNORECASE)

_CONVERT = "a notebook: convert it by `jupyter nbconvert --to script`, and port that"
_GRAD_SCALERS = {"torch.GradScaler", "torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler"}


@dataclass(frozen=True)
class Ported:
    """What was found in a file, and its bytes with all replacements made."""

    content: bytes
    places: tuple[Place, ...] = ()
    problem: str = ""
    """why the file, which has a word of CUDA's, could not be read; then it is as it was"""


def _may_name_cuda(content: bytes) -> bool:
    """Whether a text has a word that some rule is about."""
    return bool(_MAY_NAME_CUDA.search(content))


def port_source(content: bytes, target: Target) -> Ported:
    """Find where a Python file names CUDA, and replace what can be replaced safely.

    Args:
        content: the file, in any encoding that it declares.
        target: what is written in CUDA's place.

    Returns:
        Its places in the order of the text. Comments, layout, line ends and encoding are kept byte for byte. Ported
        again, the result has no place with a replacement.
    """
    if not _may_name_cuda(content):
        return Ported(content)
    try:
        source = Source(content)
        tree = Tree(source.text)
        findings = Findings(source, tree, target)
        _find(findings)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Ported(content, problem=f"{type(error).__name__}: {error}")
    places = sorted(findings.places, key=lambda place: (place.line, place.column))
    if not findings.edits:
        return Ported(content, tuple(places))
    try:
        text = source.apply(findings.edits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
        changed = source.encoded(text)
    except (AssertionError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = f"together the replacements give a text that Python refuses ({error}): replace it by hand"
        return Ported(content, tuple(replace(place, new=None, reason=place.reason or why) for place in places))
    return Ported(changed, tuple(places))


def _find(findings: Findings) -> None:
    tree = findings.tree
    port_type_comments(findings)
    own_method = any(defines_cuda(node) for node in tree.nodes)
    for node in tree.nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            port_import(findings, node)
        elif isinstance(node, ast.Attribute):
            if not isinstance(tree.parents[node], ast.Attribute):
                port_chain(findings, node)
            port_attribute(findings, node)
        elif isinstance(node, ast.JoinedStr):
            port_fstring(findings, node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            port_text(findings, node)
        elif isinstance(node, ast.keyword) and node.arg == "use_cuda":
            port_use_cuda(findings, node)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
                port_cuda_call(findings, node, own_method)
            if tree.dotted(node.func) in _GRAD_SCALERS:
                port_grad_scaler(findings, node)
        elif isinstance(node, ast.ClassDef) and defines_cuda(node):
            method = next(part for part in node.body if getattr(part, "name", "") == "cuda")
            findings.leave(method, "a method cuda that the program defines: change it by hand if it means a device")


def notebook_problem(content: bytes) -> str:
    """Why a notebook is not read, and what to do; empty for one whose code has no word of CUDA's."""
    try:
        cells = json.loads(content)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, LookupError, TypeError):
        code = [content.decode("utf-8", "replace")]  # of an old format, or none
    return _CONVERT if _may_name_cuda("\n".join(code).encode()) else ""
