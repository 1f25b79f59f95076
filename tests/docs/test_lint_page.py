"""docs/lint-ops.md and docs/explain.md: their tables are the code's, and what they show runs and prints that."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pages import code, table_rows, text_of

from backplane_tools.cli import main
from backplane_tools.cli.explain import explain
from backplane_tools.cli.lint_ops import lint_ops

LINT, EXPLAIN = "docs/lint-ops.md", "docs/explain.md"


def rows(page):
    return {row[0].strip("`"): row[1:] for row in table_rows(page)}


@pytest.mark.usefixtures("backend_package")
def test_every_rule_is_there_with_its_level():
    from torch_backplane.ops.lint_rules import RULES

    found = {name: row[0] for name, row in rows(LINT).items() if name in RULES}
    assert found == {name: rule.level for name, rule in RULES.items()}


@pytest.mark.parametrize(("page", "command"), [(LINT, lint_ops), (EXPLAIN, explain)])
def test_every_option_is_there(page, command):
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert {name for name in rows(page) if re.fullmatch(r"--\w+", name)} == options


@pytest.mark.usefixtures("backend_package")
def test_the_rules_at_import_are_those_that_the_page_says():
    from torch_backplane.ops.lint_rules import RULES

    later = {name for name, rule in RULES.items() if not rule.at_import}
    assert later == {"duplicate-impl", "half-pair", "never-runs"}
    assert "except `duplicate-impl`, about which torch itself warns, `half-pair` and `never-runs`" in words(
        text_of(LINT)
    )


@pytest.fixture
def my_ops(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_ops.py").write_text(code(LINT)[0])
    yield
    module = sys.modules.pop("my_ops", None)
    for library in (module.aten, module.library) if module else ():
        library._destroy()


def words(text):
    return " ".join(text.split())


@pytest.mark.usefixtures("backend_package", "my_ops")
def test_the_lint_prints_what_the_page_shows(tmp_path):
    # A new process: other tests have left operators in this one.
    command = [sys.executable, "-m", "backplane_tools", "lint-ops", "--import", "my_ops"]
    done = subprocess.run(
        [*command, "--json", "x.json", "--junit", "x.xml"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1, done.stderr
    shown = code(LINT, "text")[0].replace("2.13.0", re.search(r"in torch (\S+)", done.stdout)[1])
    for part in shown.split("\n\n"):
        assert words(part) in words(done.stdout)
    assert '"rule": "unknown-op"' in (tmp_path / "x.json").read_text()
    assert (tmp_path / "x.xml").read_text().count("<failure") == 3
    only = CliRunner().invoke(main, ["lint-ops", "--import", "my_ops", "--namespace", "vendor"])
    assert only.exit_code == 0
    assert "0 errors, 2 warnings" in only.output
    strict = ["lint-ops", "--namespace", "vendor", "--strict", "--ignore", "no-fake"]
    assert CliRunner().invoke(main, strict).exit_code == 1
    assert CliRunner().invoke(main, [*strict, "--ignore", "no-autograd:vendor::*"]).exit_code == 0


@pytest.mark.usefixtures("backend_package")
def test_explain_prints_what_the_page_shows():
    """Lines and places of kernels differ between projects and versions of torch."""
    one, several = (command.split()[1:] for command in code(EXPLAIN, "sh")[0].splitlines())
    tree, table, *_ = code(EXPLAIN, "text")

    def printed(words):
        command = [Path(sys.executable).with_name("torch-backplane"), *words]
        environment = {**os.environ, "MYDEVICE_KERNELS": "wait"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert [line.split()[:3] for line in printed(one)[2:-5]] == [line.split()[:3] for line in tree.splitlines()[2:-5]]
    shown = [line.rsplit(None, 1)[0].split() for line in table.splitlines()]
    assert [line.rsplit(None, 1)[0].split() for line in printed(several)] == shown


@pytest.mark.usefixtures("backend_package")
@pytest.mark.parametrize(("page", "index"), [(LINT, 1), (EXPLAIN, 0)])
def test_the_python_of_the_pages_runs(page, index):
    exec(compile(code(page)[index], page, "exec"), {})


@pytest.mark.usefixtures("backend_package")
def test_bad_input_is_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    other = tmp_path / "other.json"
    other.write_text("{}")
    cases = {
        "there is no rule 'no-fakes'; there are": ["lint-ops", "--ignore", "no-fakes"],
        "there is no operator in the namespace 'atem'; there are aten": ["lint-ops", "--namespace", "atem"],
        "--import nothing: ModuleNotFoundError: No module named 'nothing'": ["lint-ops", "--import", "nothing"],
        "cannot write missing/x.json: there is no folder missing": ["lint-ops", "--json", "missing/x.json"],
        "there is no operator 'aten::gelo': did you mean aten::gelu": ["explain", "aten::gelo"],
        "did you mean aten::add.Scalar, aten::add.Scalar_out, aten::add.Tensor, aten::add.out": [
            "explain",
            "aten::add",
        ],
        "there is no device type 'nothing': Valid are": ["explain", "aten::gelu", "--device", "nothing"],
        "torch has no such dtype": ["explain", "aten::gelu", "--dtype", "f8"],
        "neither a list of operators nor what `torch-backplane coverage --json` writes": [
            "explain",
            "--file",
            str(other),
        ],
        "name an operator": ["explain"],
    }
    for answer, command in cases.items():
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2, command
        assert answer.replace("`", "") in words(done.output).replace("`", ""), command
