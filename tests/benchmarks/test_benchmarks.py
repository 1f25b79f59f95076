"""The benchmark's own logic: budgets, merging, the report. What is fast is for `make bench`, never for a test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import device_rows
from benchmarks.allocator import TRACES, read_trace, write_trace
from benchmarks.row import AS_IS, INLINE, Line, Result, Row
from benchmarks.sweep import FAMILIES, draw

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("budget", "at_least", "best", "within"),
    [
        (1.1, False, 1.0, True),
        (1.1, False, 1.2, False),
        (0.95, True, 0.9, False),
        (0.95, True, 1.0, True),
        (None, False, 9.0, None),
    ],
)
def test_budget(budget, at_least, best, within):
    row = Row("row", lambda device: Result(best, best), budget, at_least)
    assert Line.measured(row, INLINE, "cpu").within is within


def test_an_error_is_a_line_and_not_the_end():
    def fail(device):
        raise RuntimeError("no kernel\nsecond line")

    line = Line.measured(Row("row", fail, 1.0), INLINE, "cpu")
    assert (line.error, line.within, line.result) == ("RuntimeError: no kernel\nsecond line", None, None)


@pytest.mark.parametrize("result", [None, Result(1.0, 2.0, device=1e-6, cpu=1e-6)])
def test_lines_survive_the_way_from_the_child(result):
    line = Line("row", "as is", 1.1, result=result)
    assert Line.from_json(json.loads(json.dumps(line.to_json()))) == line


@pytest.mark.parametrize("models", [False, True])
def test_rows_name_a_configuration_once(models):
    seen = [(row.name, configuration.name) for row in device_rows(models) for configuration in row.configurations]
    assert len(seen) == len(set(seen))


def test_command_measures_and_writes_json(tmp_path):
    """On the CPU itself, so that it needs no backend: a ratio must come out."""
    command = [sys.executable, "-m", "benchmarks", "--module", "benchmarks", "--device", "cpu", "--only", "^view$"]
    run = subprocess.run(
        [*command, "--json", tmp_path / "out.json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    (line,) = json.loads((tmp_path / "out.json").read_text())["lines"]
    assert (line["row"], line["configuration"], line["error"]) == ("view", AS_IS.name, None)
    assert line["result"]["best"] > 0
    assert "view" in run.stdout


def test_a_call_of_the_sweep_is_drawn_from_its_number():
    calls = {}
    for seed in range(200):
        family, statement, call = draw(seed)
        again = draw(seed)
        assert (family, statement, call.describe()) == (*again[:2], again[2].describe())
        calls.setdefault(family, (statement, call))
    assert calls.keys() == FAMILIES.keys()
    for statement, call in calls.values():
        eval(statement, call.names("cpu"))


def test_the_sweep_measures_and_prints():
    command = [sys.executable, "-m", "benchmarks.sweep", "--module", "benchmarks", "--device", "cpu"]
    run = subprocess.run(
        [*command, "--count", "2", "--least", "0"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert draw(1)[1] in " ".join(run.stdout.split())
    assert "2 calls, of which 2 take 0 x or more" in run.stdout


def test_a_missing_module_is_explained():
    command = [sys.executable, "-m", "benchmarks", "--module", "no_such_backend"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "no_such_backend" in run.stderr
    assert "--module" in run.stderr


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.xz")), ids=lambda path: path.stem)
def test_traces_free_what_they_allocated(path):
    events = read_trace(path)
    freed, count = set(), 0
    for event in events:
        if event > 0:
            count += 1
        else:
            assert 1 <= -event <= count
            assert event not in freed
            freed.add(event)
    assert count > 500
    assert path.stat().st_size < 100_000


def test_traces_survive_the_file(tmp_path):
    write_trace(tmp_path / "trace.xz", [512, 1 << 30, -1, 7, -3])
    assert read_trace(tmp_path / "trace.xz") == [512, 1 << 30, -1, 7, -3]
