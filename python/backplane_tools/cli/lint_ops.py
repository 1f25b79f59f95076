"""``torch-backplane lint-ops``: registrations that go wrong silently, each with the line to write."""

from __future__ import annotations

import importlib
import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from backplane_tools.cli.output import FILE, check_folders, console, exit_if, from_here, load_backend, write_json

if TYPE_CHECKING:
    from torch_backplane.ops import Finding

_COLOURS = {"error": "bold red", "warning": "yellow"}


@click.command("lint-ops")
@click.option("--namespace", metavar="NS", help="Only operators of this namespace, such as aten.")
@click.option("--ignore", multiple=True, metavar="RULE[:OP]", help="Leave out a rule, or a rule for an operator.")
@click.option("--import", "modules", multiple=True, metavar="MODULE", help="Import it first: it registers operators.")
@click.option("--strict", is_flag=True, help="Warnings fail the run, too: for CI.")
@click.option("--json", "json_path", type=FILE, metavar="FILE", help="Write the findings as JSON.")
@click.option(
    "--junit", "junit_path", type=FILE, metavar="FILE", help="Write them as JUnit XML, one test case per rule."
)
def lint_ops(
    namespace: str | None,
    ignore: tuple[str, ...],
    modules: tuple[str, ...],
    strict: bool,
    json_path: Path | None,
    junit_path: Path | None,
) -> None:
    """Look for registrations that go wrong silently.

    Each finding names the place, what it costs, and what to write. The exit status is 1 if one is an error, with
    --strict for each, and 2 for wrong usage or a device that does not load.
    """
    check_folders(json_path, junit_path)
    device = load_backend()
    _import(modules)

    import torch

    from torch_backplane.ops import lint
    from torch_backplane.ops.lint_rules import RULES

    try:
        findings = lint(namespace, ignore=ignore)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    _print(findings, device, len(RULES))
    content = {"device": device, "torch": torch.__version__, "findings": [asdict(finding) for finding in findings]}
    write_json(json_path, content)
    if junit_path is not None:
        _write_junit(findings, list(RULES), junit_path)
    exit_if(any(strict or finding.level == "error" for finding in findings))


def _import(modules: Sequence[str]) -> None:
    sys.path.insert(0, os.getcwd())
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise click.UsageError(f"--import {module}: {type(error).__name__}: {error}") from error


def _print(findings: Sequence[Finding], device: str, rules: int) -> None:
    out = console()
    for finding in findings:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for part in ("what", "where", "why", "write"):
            table.add_row(part, escape(from_here(getattr(finding, part))))
        out.print(f"[{_COLOURS[finding.level]}]{finding.level}[/]  [bold]{finding.rule}[/]  {escape(finding.op)}")
        out.print(table)
        out.print()
    errors = sum(finding.level == "error" for finding in findings)
    out.print(f"{device}: {rules} rules, {errors} errors, {len(findings) - errors} warnings")


def _write_junit(findings: Sequence[Finding], rules: Sequence[str], path: Path) -> None:
    failed = {finding.rule for finding in findings}
    suite = ET.Element("testsuite", name="lint-ops", tests=str(len(rules)), failures=str(len(failed)), errors="0")
    for rule in rules:
        case = ET.SubElement(suite, "testcase", classname="lint-ops", name=rule)
        found = [finding for finding in findings if finding.rule == rule]
        if found:
            message = f"{len(found)} x {rule}: {found[0].what}"
            ET.SubElement(case, "failure", message=message).text = "\n".join(map(str, found))
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
