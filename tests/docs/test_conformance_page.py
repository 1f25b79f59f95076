"""docs/conformance.md says what the conformance kit does: options, suites and statuses, and its code runs."""

import subprocess
import sys

import pytest
from pages import blocks, table_rows

from backplane_tools.cli.conformance import conformance
from backplane_tools.conformance.expected import Expected
from backplane_tools.conformance.record import BAD, STATUSES
from backplane_tools.conformance.suites import SUITES

PAGE = "docs/conformance.md"
ROWS = {row[0].strip("`"): row[1:] for row in table_rows(PAGE)}


def test_every_option_suite_and_status_is_there():
    options = {option for parameter in conformance.params for option in parameter.opts if option.startswith("--")}
    assert set(ROWS) == options | set(SUITES) | set(STATUSES)


def test_the_statuses_mean_what_the_code_says():
    assert {name: ROWS[name][0] for name in STATUSES} == STATUSES
    assert {name for name in STATUSES if "yes" in ROWS[name][1]} == BAD


def test_the_list_is_one(tmp_path):
    (toml,) = [block for block in blocks(PAGE) if block.language == "toml"]
    path = tmp_path / "conformance.toml"
    path.write_text(toml.content)
    assert [entry.case for entry in Expected.read(path).entries] == ["ops/nn.functional.conv3d/float16"]


def run(folder, *words):
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.long
def test_the_python_blocks_run(tmp_path):
    device_generic, suite = [block.content for block in blocks(PAGE) if block.language == "python"]
    (tmp_path / "test_sort.py").write_text(device_generic)
    assert "2 passed" in run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "test_sort.py")
    (tmp_path / "board.py").write_text(suite)
    said = run(tmp_path, "backplane_tools", "conformance", "--suite", "board=board:BoardSuite", "--jobs", "1")
    assert "1 case holds" in said
