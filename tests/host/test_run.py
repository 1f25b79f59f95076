"""tests/run.py and --sample: a part that fails hides no other's results, and the parts of a sample are the whole."""

import importlib.util
import os
import re
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest
import system_packages

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


def test_the_parts_of_a_sample_are_the_whole_and_a_wrong_one_is_refused(pytestconfig):
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
    for wrong in ("4/3:a", "0/3:a", "1/3"):
        with pytest.raises(pytest.UsageError, match="K/N:SEED is needed"):
            collected(wrong)


def test_every_part_runs_and_the_summary_says_which_failed(runner, tmp_path, monkeypatch, capfd):
    for name, body in (("good", "pass"), ("bad", "assert 0"), ("last", "pass")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_it():\n    {body}\n")
    parts = [
        runner.Part(
            name, [str(tmp_path / f"test_{name}.py"), "-p", "no:cacheprovider"], in_test="1/1" * (name != "last")
        )
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


def test_a_sample_is_of_the_long_tests_and_of_each_other_kind(runner, monkeypatch):
    ran = {}

    def run(part, jobs, extra):
        ran[part.name] = (part.arguments, extra[1].partition(":")[0] if extra else None)
        return 0, 0.0

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(system_packages, "missing", lambda: "there is no such thing")
    monkeypatch.setattr(sys, "argv", ["run.py", "--sample", "1/4"])
    assert runner.main() == 0
    whole = [arguments for arguments, sample in ran.values() if sample is None]
    assert whole == [
        ["-m", "not long and not system"],
        ["tests/portable", "-m", "not long and not system"],
        ["tests/device", "-m", "kernels and not long"],
    ]
    half, *others = [pair for pair in ran.values() if pair[1] is not None]
    assert half == (runner.DEVICE, "1/2")
    compiled = [
        (["tests/portable", "-m", "long and not system"], "1/8"),
        ([*runner.GENERATED, "-m", "not long"], "1/4"),
        (["tests/device", "-m", "kernels and not once"], "1/4"),
    ]
    assert others == [(["-m", "long and not system"], "1/8"), *compiled, *[(runner.DEVICE, "1/4")] * 3]
    ran.clear()
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert runner.main() == 0
    assert list(ran.values()) == [
        (whole[0], None),
        (runner.DEVICE, "1/2"),
        *[(arguments, None) for arguments in whole[1:]],
    ]


def test_a_wrong_sample_is_refused_before_anything_runs(runner, monkeypatch, capsys):
    monkeypatch.setattr(runner, "run", lambda *_: pytest.fail("a part ran"))
    for wrong in ("5/4", "0/4", "4", "a/b", "1/4:seed"):
        monkeypatch.setattr(sys, "argv", ["run.py", "--sample", wrong])
        with pytest.raises(SystemExit):
            runner.main()
        assert "K/N is needed, such as 1/16" in capsys.readouterr().err


def test_parts_that_need_system_packages_are_left_out_or_run_alone(runner, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(runner, "run", lambda part, jobs, extra: (ran.append(part.name), (0, 0.0))[1])
    monkeypatch.setattr(
        runner, "PARTS", [runner.Part("plain", in_test="1/1"), runner.Part("needy", in_test="1/1", system=True)]
    )
    for words, missing, expected in (
        ([], "", ["plain", "needy"]),
        ([], "there is no PoCL", ["plain"]),
        (["--system"], "", ["needy"]),
        (["--system"], "there is no PoCL", []),
    ):
        monkeypatch.setattr(system_packages, "missing", lambda missing=missing: missing)
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        ran.clear()
        assert runner.main() == 0
        assert ran == expected
        assert ("needy: there is no PoCL" in capsys.readouterr().out) == bool(missing)


def test_no_other_part_needs_system_packages(runner):
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    assert sorted(name for name, text in texts.items() if "pytest.mark." + "system" in text) == runner.SYSTEM
    for part in runner.PARTS:
        paths = [word for word in part.arguments if word.startswith("tests")] or ["tests"]
        reaches = any(file.startswith(path) for path in paths for file in runner.SYSTEM)
        assert ("not system" in " ".join(part.arguments)) == (reaches and not part.system), part.name


def test_ci_runs_the_readmes_commands_before_it_installs_what_they_do_not_need():
    before, after = (ROOT / ".ci" / "run").read_text().split("system_packages.py", 1)
    for command in re.findall(r"^make (demo|test) ", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^make {command}\b", before, re.MULTILINE)
    assert not set(system_packages.PACKAGES.split()) & set(before.split())
    assert re.search(r"install .*\$packages(.|\n)*^  make test .*ARGS=--system$", after, re.MULTILINE)


def test_an_empty_sample_is_no_failure(runner, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(CONFTEST.parent))
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    part = runner.Part("few", [str(tmp_path / "test_it.py"), "-p", "no:cacheprovider"])
    statuses = {runner.run(part, "0", ["--sample", f"{k}/2:abc"])[0] for k in (1, 2)}
    assert statuses == {0}
    assert runner.run(part, "0", ["-k", "nothing"])[0] == pytest.ExitCode.NO_TESTS_COLLECTED


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
        (["tests/device", "-m", "kernels and not long"], []),
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


def test_libraries_are_tried_by_their_own_command_alone(tmp_path):
    """Whatever is installed: a library that `make test` can import is no reason to try it."""
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "accelerate.py").touch()
    (tmp_path / "ecosystem").mkdir()
    for path in ("test_own.py", "ecosystem/test_accelerate.py"):
        (tmp_path / path).write_text("def test_it(): pass\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CONFTEST.parent), str(tmp_path)])}
    found = {}
    for words in ((), ("-p", "ecosystem_results")):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *words, tmp_path]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        found[words] = [line for line in done.stdout.splitlines() if "::" in line]
    own, library = "test_own.py::test_it", "ecosystem/test_accelerate.py::test_it"
    assert found == {(): [own], ("-p", "ecosystem_results"): [library, own]}
    commands = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "pytest" in line and "ecosystem" in line
    ]
    assert len(commands) == 3  # two are of `make test-vllm`: serving, for the same table, and its Transformers
    assert all("-p ecosystem_results" in line for line in commands)
