"""Checks what is registered for the device by the rules of :mod:`torch_backplane.ops.lint_rules`."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable
from fnmatch import fnmatchcase

import torch

from torch_backplane import _backend
from torch_backplane.ops import devices
from torch_backplane.ops.lint_rules import RULES, Facts, Finding


class LintWarning(UserWarning):
    """Findings in the registrations of a development build."""


def lint(namespace: str | None = None, *, ignore: Iterable[str] = ()) -> list[Finding]:
    """Find registrations that fail silently: docs/lint-ops.md lists the rules.

    No operator runs. What a Python module registers is seen once that module is imported.

    Args:
        namespace: check only operators of this namespace, ``"aten"`` or ``"vendor"``.
        ignore: rules to skip, ``"no-fake"``, or a rule for an operator, ``"no-fake:vendor::op"``, which may be a glob.

    Returns:
        The findings, by rule.

    Raises:
        RuntimeError: no backend is loaded.
        ValueError: there is no such namespace or rule.
    """
    devices.own()
    if namespace is not None:
        _check_namespace(namespace)
    ignored = [_parse(each) for each in ignore]
    facts = Facts(namespace)
    found = [finding for rule in RULES.values() for finding in rule.findings(facts)]
    return [f for f in found if not any(f.rule == rule and fnmatchcase(f.op, op) for rule, op in ignored)]


def at_import(mode: str) -> None:
    """Apply the quick rules to what a development build has registered.

    Args:
        mode: ``"warn"``, or ``"error"``: findings of that level raise.

    Raises:
        ImportError: the mode is ``"error"``, and there is a finding of that level.
    """
    facts = Facts()
    found = [finding for rule in RULES.values() if rule.at_import for finding in rule.findings(facts)]
    if not found:
        return
    lines = "\n".join(f"  {finding}" for finding in found)
    variable = _backend.env_name("LINT")
    text = f"registrations of {_backend.device} (torch-backplane lint-ops; {variable}=off silences this):\n{lines}"
    if mode == "error" and any(finding.level == "error" for finding in found):
        raise ImportError(text, name=_backend.package)
    warnings.warn(text, LintWarning, stacklevel=3)


def _check_namespace(namespace: str) -> None:
    known = {op.partition("::")[0] for op in torch._C._dispatch_get_all_op_names()}
    if namespace in known or f"name: {namespace}::" in "".join(torch._C._dispatch_find_dangling_impls()):
        return
    near = difflib.get_close_matches(namespace, known, n=3) or sorted(known)
    raise ValueError(
        f"there is no operator in the namespace '{namespace}'; there are {', '.join(near)}. A namespace of a Python "
        "module is there once the module is imported"
    )


def _parse(text: str) -> tuple[str, str]:
    """Rule and operator of something to ignore."""
    rule, _, op = text.partition(":")
    if rule not in RULES:
        raise ValueError(f"ignore {text!r}: there is no rule '{rule}'; there are {', '.join(RULES)}")
    return rule, op or "*"
