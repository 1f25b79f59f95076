"""``torch-backplane new``: asks the template's questions, checks each answer at once, and writes the project.

The questions are cookiecutter.json's and the checks are the template's own hook, so that running cookiecutter on the
template gives the same files. Nothing is written outside the output folder.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from cookiecutter.environment import StrictEnvironment
from cookiecutter.exceptions import CookiecutterException, OutputDirExistsException
from cookiecutter.generate import generate_files
from cookiecutter.prompt import render_variable

from backplane_sdk import template_dir


def questions() -> dict[str, Any]:
    """The template's ``cookiecutter.json``."""
    return json.loads((template_dir() / "cookiecutter.json").read_text(encoding="utf-8"))


def checks() -> ModuleType:
    """The template's ``hooks/pre_gen_project.py``, as a module."""
    spec = importlib.util.spec_from_file_location("_backplane_pre_gen", template_dir() / "hooks" / "pre_gen_project.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def default_answer(question: str, answers: dict[str, str]) -> str:
    """What a question answers itself, given the answers before it: a rendered default, or the first of its choices."""
    raw = questions()[question]
    if isinstance(raw, list):
        raw = raw[0]
    context = {"cookiecutter": answers}
    return str(render_variable(StrictEnvironment(context=context), raw, answers))


def render(answers: dict[str, str], output_dir: Path, *, overwrite: bool = False) -> Path:
    """Write the project and return its folder.

    Args:
        answers: some or all of the questions' answers; the others take their defaults.
        output_dir: where the project's folder (named as its package) is made.
        overwrite: write over a folder that exists; files that the template does not have stay.

    Raises:
        ValueError: an unknown question, or an answer that the checks refuse.
        FileExistsError: the folder exists and ``overwrite`` is false.
    """
    template = questions()
    asked = [question for question in template if not question.startswith("_")]
    if unknown := sorted(set(answers) - set(asked)):
        raise ValueError(f"unknown question {unknown[0]!r}; the template asks: {', '.join(asked)}.")
    complete: dict[str, str] = {}
    for question in asked:
        complete[question] = answers[question] if question in answers else default_answer(question, complete)
    if problems := checks().check(complete):
        raise ValueError("\n".join(problems))
    private = {name: value for name, value in template.items() if name.startswith("_") and name != "__prompts__"}
    try:
        with _own_temporary_folder():
            folder = generate_files(
                repo_dir=str(template_dir()),
                context={"cookiecutter": {**complete, **private}},
                output_dir=str(output_dir),
                overwrite_if_exists=overwrite,
            )
    except OutputDirExistsException as error:
        raise FileExistsError(
            f"{output_dir / complete['package_name']} exists: remove it, choose another --output-dir, or --overwrite."
        ) from error
    return Path(folder)


@contextmanager
def _own_temporary_folder() -> Iterator[None]:
    """Cookiecutter leaves each rendered hook behind in the temporary folder."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before


def ask(question: str, answers: dict[str, str]) -> str:
    """Ask until the answer passes its check."""
    raw = questions()[question]
    prompts = questions()["__prompts__"][question]
    text = prompts if isinstance(prompts, str) else prompts["__prompt__"]
    choice = click.Choice(raw) if isinstance(raw, list) else None
    if choice and isinstance(prompts, dict):
        for value in raw:
            click.echo(f"    {prompts.get(value, value)}")
    while True:
        answer = click.prompt(text, default=default_answer(question, answers), type=choice)
        problem = checks().refuse(question, answer)
        if problem is None:
            return str(answer)
        click.secho(problem, fg="red", err=True)


@click.command()
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where the project's folder is made (default: here).",
)
@click.option("--overwrite", is_flag=True, help="Write over a project that exists.")
@click.option("--no-input", is_flag=True, help="Ask nothing: defaults where no answer is given.")
@click.argument("answers", nargs=-1, metavar="[QUESTION=ANSWER]...")
def new(output_dir: Path, overwrite: bool, no_input: bool, answers: tuple[str, ...]) -> None:
    """Write a new backend project, ready to build.

    Answers may be given beforehand, as in ``torch-backplane new device_name=npu driver=minimal``.
    """
    given: dict[str, str] = {}
    for answer in answers:
        question, equals, value = answer.partition("=")
        if not equals:
            raise click.UsageError(f"{answer!r} is not of the form QUESTION=ANSWER.")
        given[question] = value
    try:
        if not no_input:
            everything: dict[str, str] = {}
            for question in questions():
                if not question.startswith("_"):
                    everything[question] = given[question] if question in given else ask(question, everything)
            given |= everything
        folder = render(given, output_dir, overwrite=overwrite)
    except (ValueError, FileExistsError) as error:
        raise click.ClickException(str(error)) from error
    except CookiecutterException as error:
        raise click.ClickException(f"the template could not be rendered: {error}") from error
    click.secho(f"{folder} is written.", fg="green")
    click.echo(f"Next: cd {folder} && make setup && make test")
