"""What ``make gpu-check`` does where it cannot run, and what it makes of its parts. The parts themselves need a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "gpu_check.py"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """The program as a module, on a machine where nothing is missing, with another folder."""
    spec = importlib.util.spec_from_file_location("gpu_check", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "OUT", tmp_path / "gpu")
    monkeypatch.setattr(module, "missing", lambda parts: [])
    monkeypatch.setattr(module, "machine", lambda: {"gpu": "A <GPU>"})
    return module


def test_a_machine_without_a_gpu_is_reported():
    spec = importlib.util.spec_from_file_location("gpu_check_here", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check_here"] = module
    spec.loader.exec_module(module)
    if not module.gpu_trouble():
        pytest.skip("this machine has a GPU")
    words = ["make", "gpu-check", f"PYTHON={sys.executable}", "ARGS=--part build"]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PATH": "/usr/bin:/bin"}, check=False
    )
    assert done.returncode != 0
    assert "make gpu-check cannot run here:" in done.stdout
    assert "there is no NVIDIA GPU here: libcuda.so.1" in done.stdout


def test_what_is_absent_is_named(check, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "gpu_check", check)
    monkeypatch.setattr(check, "module_missing", lambda name: name == "scipy")
    monkeypatch.setattr(check, "torch_trouble", lambda: "")
    monkeypatch.setattr(check, "gpu_trouble", lambda: "")
    assert check.missing(["device tests"]) == []
    assert check.missing(["device-share"]) == ["no Python module scipy: pip install scipy"]
    monkeypatch.setattr(check, "program_missing", lambda *names: "ninja" in names)
    assert check.missing(["build"]) == ["no ninja: pip install ninja"]


def test_the_report_has_every_part(check, monkeypatch, capsys):
    rows = [
        {"name": "copy <x>", "best": 0.5, "budget": 0.97, "speed": True},
        {"name": "mm", "error": "no", "speed": True, "budget": 1},
    ]
    monkeypatch.setattr(
        check,
        "PARTS",
        {
            "build": lambda: check.Outcome("build", "passed"),
            "check-driver": lambda: check.Outcome("check-driver", "failed", rows=[{"name": "a.b", "error": "<why>"}]),
            "bench": lambda: check.Outcome("bench", "passed", rows=rows),
        },
    )
    assert check.main([]) == 1
    report = json.loads((check.OUT / "gpu-check.json").read_text())
    assert [(part["part"], part["status"]) for part in report["parts"]] == [
        ("build", "passed"),
        ("check-driver", "failed"),
        ("bench", "passed"),
    ]
    page = (check.OUT / "gpu-check.html").read_text()
    for cell in ("A &lt;GPU&gt;", "&lt;why&gt;", "copy &lt;x&gt;", "<td>0.50</td><td>&gt;= 0.97</td>", "<td>no</td>"):
        assert cell in page
    assert "failed          0 s  check-driver" in capsys.readouterr().out

    # A part by itself takes its place among those of before.
    (check.OUT / check.DEVICE).mkdir()
    (check.OUT / check.DEVICE / "__init__.py").touch()
    check.PARTS["check-driver"] = lambda: check.Outcome("check-driver", "passed")
    assert check.main(["--part", "check-driver"]) == 0
    report = json.loads((check.OUT / "gpu-check.json").read_text())
    assert [part["status"] for part in report["parts"]] == ["passed"] * 3


def test_nothing_runs_without_a_build(check, monkeypatch, capsys):
    assert check.main(["--part", "bench"]) == 2
    assert "run the part build first" in capsys.readouterr().out
    monkeypatch.setitem(check.PARTS, "build", lambda: check.Outcome("build", "failed", summary="no compiler"))
    assert check.main([]) == 1
    report = json.loads((check.OUT / "gpu-check.json").read_text())
    assert {part["status"] for part in report["parts"][1:]} == {"not run"}


def test_a_part_has_a_limit(check, monkeypatch):
    check.OUT.mkdir()
    monkeypatch.setattr(check, "LIMIT_S", 0.5)
    monkeypatch.setattr(check, "ROOT", check.OUT)
    status, text = check.run(["sh", "-c", "echo begun; sleep 60"], "slow")
    assert status == "too slow"
    assert "slow.log" in text
    assert check.run(["sh", "-c", "echo done; exit 3"], "wrong") == ("failed", "done\n")


def test_failures_come_from_junit(check, tmp_path):
    junit = tmp_path / "result.xml"
    junit.write_text(
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><failure message='why'>x</failure></testcase>"
        "<testcase name='c'><skipped message='no'/></testcase></testsuite></testsuites>"
    )
    assert check.failures_of(junit) == [{"name": "b", "error": "why"}]
    assert check.failures_of(tmp_path / "none.xml") == []
