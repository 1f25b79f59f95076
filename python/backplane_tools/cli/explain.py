"""``torch-backplane explain``: an operator's way through the dispatcher, that of many, or a compiled program's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from backplane_tools.cli.output import COLOURS, SCRIPT, console, table

if TYPE_CHECKING:
    from torch_backplane.ops import Explanation

# torch has half, float, double, int and long itself.
_SHORT_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}


@click.command()
@click.argument("ops", nargs=-1, metavar="[OP]...")
@click.option(
    "--file",
    "files",
    type=SCRIPT,
    multiple=True,
    help="Operators, one per line, or what `torch-backplane coverage --json` wrote.",
)
@click.option("--device", metavar="NAME", help="As in torch.device(); default: the installed backend's.")
@click.option("--dtype", metavar="NAME", help="Of the tensors, such as bfloat16 or bf16.")
@click.option("--inductor", is_flag=True, help="Ask Inductor as well, whose import takes seconds.")
@click.option(
    "--compiled",
    "script",
    type=SCRIPT,
    help="Run this program instead, OP being its arguments, and report what torch.compile made of it: graph breaks, "
    "kernels, calls and why, times.",
)
@click.option(
    "--times/--no-times",
    default=True,
    show_default=True,
    help="With --compiled: what each kernel took of the device. --no-times for a program that profiles itself.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(
    ops: tuple[str, ...],
    files: tuple[Path, ...],
    device: str | None,
    dtype: str | None,
    inductor: bool,
    script: Path | None,
    times: bool,
    as_json: bool,
) -> None:
    """Show an operator's way through the dispatcher, or what torch.compile made of a program.

    OP is a name such as aten::gelu or add.Tensor, in the namespace aten unless another is given. One is shown as a
    tree, several as a table. No operator runs on the device.
    """
    if script is None and not times:
        raise click.UsageError("--no-times goes with --compiled")
    if script is not None:
        if files or device or dtype or inductor:
            raise click.UsageError("--compiled takes no --file, --device, --dtype or --inductor: they are of operators")
        from backplane_tools.cli.explain_compiled import explain_compiled

        return explain_compiled(script, ops, as_json, times)
    names = [*ops, *(name for file in files for name in _read(file))]
    if not names:
        raise click.UsageError("name an operator, such as aten::gelu, or a --file of them")
    import torch

    from torch_backplane.ops import explain as explain_one

    wanted = _dtype(dtype, torch)
    try:
        found = [explain_one(name, device, wanted, inductor=inductor) for name in dict.fromkeys(names)]
    except (ValueError, RuntimeError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps([each.to_json() for each in found], indent=1))
        return
    console().print(found[0] if len(found) == 1 else _table(found, inductor), soft_wrap=len(found) == 1)


def _read(path: Path) -> list[str]:
    """The operators of a file."""
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("{"):
        try:
            return [row["op"] for row in json.loads(text)["operators"]]
        except (ValueError, KeyError, TypeError) as error:
            form = "it is neither a list of operators nor what `torch-backplane coverage --json` writes"
            raise click.UsageError(f"--file {path}: {form}") from error
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def _dtype(name: str | None, torch: Any) -> Any:
    if name is None:
        return None
    found = getattr(torch, _SHORT_DTYPES.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise click.UsageError(f"--dtype {name}: torch has no such dtype; bfloat16, float32 and int64 are some")
    return found


def _table(found: Sequence[Explanation], inductor: bool) -> Table:
    aspects = [name for name in found[0].aspects() if name != "inductor" or inductor]
    shown = table("operator", "runs", *aspects, "where", wrap=("where",))
    for each in found:
        words = [answer.word for name, answer in each.aspects().items() if name in aspects]
        where = each.steps[-1].site if each.steps else ""
        shown.add_row(each.op, f"[{COLOURS[each.runs.word]}]{each.runs.word}[/]", *words, where)
    return shown
