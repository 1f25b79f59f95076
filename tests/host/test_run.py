"""tests/run.py and --sample: a part that fails hides no other's results, and the parts of a sample are the whole."""

import importlib.util
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = ROOT / "tests" / "conftest.py"


Item = namedtuple("Item", ["nodeid"])


@pytest.fixture
def runner():
    spec = importlib.util.spec_from_file_location("backplane_tests_run", ROOT / "tests" / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_parts_of_a_sample_are_the_whole(pytestconfig):
    (conftest,) = [p for p in pytestconfig.pluginmanager.get_plugins() if getattr(p, "__file__", "") == str(CONFTEST)]
    everything = [Item(f"tests/test_it.py::test_it[{i}]") for i in range(60)]

    def collected(text):
        gone, items = [], list(everything)
        hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))
        conftest.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: text, hook=hook), items)
        assert len(items) + len(gone) == len(everything)
        return [item.nodeid for item in items]

    parts = [collected(f"{k}/3:abc") for k in (1, 2, 3)]
    assert all(parts)
    assert sorted(nodeid for part in parts for nodeid in part) == sorted(collected(None))
    assert collected("1/3:def") != parts[0]


def test_a_wrong_sample_is_refused():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/host/test_setup.py", "--sample", "4/3:a"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "--sample 4/3:a: K/N:SEED is needed" in done.stderr


def test_every_part_runs_and_the_summary_tells_which_failed(runner, tmp_path, monkeypatch, capfd):
    for name, body in (("good", "pass"), ("bad", "assert 0"), ("last", "pass")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_it():\n    {body}\n")
    parts = [
        runner.Part(name, [str(tmp_path / f"test_{name}.py"), "-p", "no:cacheprovider"], in_test=name != "last")
        for name in ("bad", "good", "last")
    ]
    monkeypatch.setattr(runner, "PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["run.py", "--jobs", "0", "--all"])
    assert runner.main() == 1
    lines = capfd.readouterr().out.partition("==== summary\n")[2].splitlines()
    assert [(line.split(" ", 1)[0], line.rsplit("  ", 1)[1]) for line in lines] == [
        ("FAILED", "bad"),
        ("passed", "good"),
        ("passed", "last"),
    ]
    monkeypatch.setattr(runner, "PARTS", parts[1:])
    assert runner.main() == 0


def test_a_sample_is_of_the_long_tests_and_of_each_other_kind(runner, monkeypatch):
    ran = {}

    def run(part, jobs, extra):
        ran[part.name] = (part.arguments, extra[1].partition(":")[0] if extra else None)
        return 0, 0.0

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(sys, "argv", ["run.py", "--sample", "1/4"])
    assert runner.main() == 0
    whole = [arguments for arguments, sample in ran.values() if sample is None]
    assert whole == [["-m", "not long"], runner.DEVICE, ["tests/portable", "-m", "not long"]]
    others = [pair for pair in ran.values() if pair[1] is not None]
    there = [(part.arguments, "1/4") for part in runner.PARTS if part.needs is not None and part.needs.exists()]
    compiled = [(["tests/portable", "-m", "long"], "1/8"), ([*runner.GENERATED, "-m", "not long"], "1/4")]
    assert others == [(["-m", "long"], "1/8"), *compiled, *[(runner.DEVICE, "1/4")] * 3, *there]
    ran.clear()
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert runner.main() == 0
    assert ran == {part.name: (part.arguments, None) for part in runner.PARTS if part.in_test}
    assert [arguments for arguments, _ in ran.values()] == whole


def test_a_part_without_what_it_needs_is_left_out_and_said(runner, monkeypatch, capsys, tmp_path):
    ran = []
    monkeypatch.setattr(runner, "run", lambda part, jobs, extra: (ran.append(part.name), (0, 0.0))[1])
    monkeypatch.setattr(sys, "argv", ["run.py", "--all"])
    for needs, there in ((tmp_path, True), (tmp_path / "nothing", False)):
        monkeypatch.setattr(runner, "PARTS", [runner.Part("plain"), runner.Part("needy", needs=needs)])
        ran.clear()
        assert runner.main() == 0
        assert ran == ["plain", *["needy"] * there]
        assert (f"needy: there is no {needs}" in capsys.readouterr().out) is not there


def test_smoke_is_of_another_torch_alone(runner, monkeypatch):
    ran = []
    monkeypatch.setattr(runner, "run", lambda part, jobs, extra: (ran.append((part.arguments, extra)), (0, 0.0))[1])
    monkeypatch.setattr(runner, "commit", lambda: "abc")
    monkeypatch.setattr(sys, "argv", ["run.py", "--smoke"])
    assert runner.main() == 0
    assert ran == [
        (["tests/host/test_drift.py"], []),
        ([runner.GENERATED[0], *runner.GENERATED[-2:]], []),
        ([*runner.WHOLE, "-m", "not long"], []),
        (["tests/portable", "-m", "not long"], ["--sample", "1/6:abc"]),
        (["tests/device", "-m", "not long"], ["--sample", "1/6:abc"]),
    ]
    for arguments, _ in ran:
        assert (ROOT / arguments[0]).exists()


def test_of_some_tests_only_the_first_variant_is_not_long(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  long\n  long_after_first\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.long_after_first\n"
        "@pytest.mark.parametrize('x', [1, 2, 3])\n"
        "def test_three(x): pass\n"
        "@pytest.mark.parametrize('x', [1, 2])\n"
        "def test_two(x): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not long"]
    env = {**os.environ, "PYTHONPATH": str(CONFTEST.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert found == ["test_it.py::test_three[1]", "test_it.py::test_two[1]", "test_it.py::test_two[2]"]
