"""docs/testing-ops.md: what it shows runs. The rows of its table of failures are tested in device/test_check_op.py."""

import os
import re
import subprocess
import sys

import pytest
from pages import blocks, table_rows

PAGE = "docs/testing-ops.md"


@pytest.mark.usefixtures("backend_package")
def test_the_pages_programs(tmp_path):
    programs = [block.content for block in blocks(PAGE) if block.language == "python"]
    [command] = [block.content for block in blocks(PAGE) if block.language == "sh"]
    report = programs[0] + "assert report.ok and not report.untested, report\n"
    (tmp_path / "test_page.py").write_text("\n\n".join([programs[1], programs[2], report]))
    name, value = command.split()[0].split("=")
    done = subprocess.run(
        [sys.executable, *command.split()[2:]],
        cwd=tmp_path,
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "15 passed" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "failures_dict.json").exists()


@pytest.mark.usefixtures("backend_package")
def test_the_page_names_every_utility():
    from torch_backplane.testing.opchecks import UTILITIES

    first = [name for row in table_rows(PAGE) if len(row) == 2 for name in re.findall(r"`(test_\w+)`", row[0])]
    assert first == list(UTILITIES)
    assert {row[0].strip("`") for row in table_rows(PAGE) if len(row) == 3} <= set(UTILITIES)
