"""The conformance kit on a device: its own suites hold on the simulator, see a wrong kernel, and run under pytest."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HOST = Path(__file__).parents[2] / "host"  # fake_suite.py


def run(folder, *words, **changes):
    paths = [str(HOST), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def conformance(folder, *arguments, **changes):
    """The rows of a run, by id."""
    words = ["backplane_tools", "conformance", "--json", "r.json", *arguments]
    done = run(folder, *words, **changes)
    assert (folder / "r.json").is_file(), done.stdout + done.stderr
    return {row["id"]: row for row in json.loads((folder / "r.json").read_text())["cases"]}


def failures(rows):
    return {case_id: row["message"] for case_id, row in rows.items() if row["status"] not in ("pass", "skip")}


@pytest.mark.long
def test_runtime_autograd_and_serialization_hold(tmp_path, name):
    rows = conformance(tmp_path, "--device", name, "--jobs", "1", "--suite", "runtime,autograd,serialization")
    assert len(rows) > 75
    assert failures(rows) == {}
    assert sum(row["status"] == "pass" for row in rows.values()) > 65


@pytest.mark.long
def test_the_driver_that_is_loaded_is_checked(tmp_path, name):
    """Each check of the contract checker is a case, with the driver's options: one device has no peer."""
    rows = conformance(tmp_path, "--jobs", "1", "driver/device.*", "driver/peer.*", "driver/memory.unique")
    assert {row["status"] for case_id, row in rows.items() if ".count" in case_id} == {"pass"}
    assert failures(rows) == {}
    about = json.loads((tmp_path / "r.json").read_text())["about"]
    assert about["device"] == f"{name}:0"
    assert Path(about["driver"]).is_file()


@pytest.mark.long
@pytest.mark.once
def test_the_drivers_options_reach_the_checker(tmp_path, name):
    options = f"{name.upper()}_OPTIONS"
    two = conformance(tmp_path, "--jobs", "1", "driver/memory.unique", **{options: "devices=2"})
    one = conformance(tmp_path, "--jobs", "1", "driver/memory.unique", **{options: "devices=1"})
    assert two["driver/memory.unique"]["status"] == "pass"
    assert one["driver/memory.unique"]["status"] == "skip"


@pytest.mark.once
def test_a_backend_that_does_not_load_is_reported(tmp_path, name):
    words = ["backplane_tools", "conformance", "--device", name, "runtime/device.count"]
    done = run(tmp_path, *words, **{f"{name.upper()}_OPTIONS": "devices=many"})
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert "devices=many" in text
    assert "Traceback" not in text


@pytest.mark.once
def test_a_wrong_kernel_is_seen(run_in_process, name):
    done = run_in_process(f"""
        import torch
        from backplane_tools.conformance import Case
        from backplane_tools.conformance.runner import Runner
        from backplane_tools.conformance.suites import SUITES

        runner = Runner("{name}", None, SUITES)
        cases = [Case("autograd", "backward.broadcast"), Case("autograd", "gradcheck"), Case("serialization", "pickle")]
        print([runner.run(case, 0).status for case in cases])
        library = torch.library.Library("aten", "IMPL")
        library.impl("cos", lambda x: torch.cos(x.cpu()).to(x.device) * 1.01, "PrivateUse1")
        library.impl("convolution_overrideable", lambda *a: torch.convolution(
            *(v.cpu() if isinstance(v, torch.Tensor) else v for v in a)).to(a[0].device) * 1.01, "PrivateUse1")
        print([runner.run(case, 0).status for case in cases])
    """)
    assert done.stdout.splitlines() == ["['pass', 'pass', 'pass']", "['fail', 'fail', 'pass']"]


@pytest.mark.once
def test_pytest_collects_the_cases(tmp_path):
    (tmp_path / "test_mine.py").write_text("def test_mine(): pass\n")
    fake = "--backplane-conformance=fake=fake_suite:FakeSuite,serialization"
    words = ["pytest", "-p", "no:cacheprovider", "-q", "-rA", fake, "-k", "mine or load.mmap or fake"]
    done = run(tmp_path, *words, FAKE_CASES="good,bad,skips,crashes", PYTEST_ADDOPTS="")
    text = done.stdout + done.stderr
    assert "PASSED test_mine.py::test_mine" in text
    assert "PASSED conformance/serialization::load.mmap" in text
    assert "PASSED conformance/fake::typed/int64" in text
    assert "FAILED conformance/fake::bad - fail: expected 1, found 2" in text
    assert "FAILED conformance/fake::crashes - crash: killed by SIGSEGV" in text
    assert "torch-backplane conformance fake/bad --suite fake=fake_suite:FakeSuite" in text
    assert "2 failed, 5 passed, 1 skipped" in text


@pytest.mark.long
@pytest.mark.once
def test_pytest_knows_the_expected_failures(tmp_path):
    listed = tmp_path / "conformance.toml"
    words = ["pytest", "-p", "no:cacheprovider", "-q", "-rA", "--backplane-conformance=fake=fake_suite:FakeSuite"]
    entry = '[[expected]]\ncase = "fake/{}"\nreason = "the sum is off"\n'
    listed.write_text(entry.format("bad") + entry.format("good"))
    text = run(tmp_path, *words, FAKE_CASES="good,bad", PYTEST_ADDOPTS="").stdout
    assert "XFAIL conformance/fake::bad" in text
    assert "the sum is off" in text
    assert "FAILED conformance/fake::good - xpass: it passes now" in text
    listed.write_text(entry.format("gone"))
    done = run(tmp_path, *words, FAKE_CASES="good", PYTEST_ADDOPTS="")
    assert done.returncode == 4
    assert "'fake/gone' matches no case" in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.once
def test_pytest_refuses_an_unknown_suite(tmp_path):
    done = run(tmp_path, "pytest", "-p", "no:cacheprovider", "--backplane-conformance", "tests", PYTEST_ADDOPTS="")
    assert done.returncode == 4
    assert "there is no suite 'tests'" in done.stdout + done.stderr
