"""What the documents show is true: the demo trains, the README's console session prints what it says."""

import doctest
import subprocess
import sys

import pytest
from pages import ROOT, blocks

DEMO = ROOT / "examples" / "demo"


@pytest.mark.usefixtures("backend_package")
@pytest.mark.timeout(300)
def test_demo_trains_on_the_device():
    command = [sys.executable, DEMO / "demo.py", "--quick"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "done in" in run.stdout
    assert "mydevice:1" in run.stdout


@pytest.fixture
def lockstep(monkeypatch):
    monkeypatch.syspath_prepend(DEMO)
    import lockstep

    return lockstep


@pytest.mark.parametrize("wrong", [1.1, float("nan")])
def test_demo_fails_on_a_wrong_loss_or_gradient(lockstep, wrong):
    lockstep.Steps([2.0, 1.0], [2.0, 1.0], [0.0, 0.0]).check()
    with pytest.raises(SystemExit, match="step 2: loss"):
        lockstep.Steps([2.0, wrong], [2.0, 1.0], [0.0, 0.0]).check()
    with pytest.raises(SystemExit, match="step 2: the gradients"):
        lockstep.Steps([2.0, 1.0], [2.0, 1.0], [0.0, wrong]).check()


@pytest.mark.usefixtures("backend_package")
@pytest.mark.parametrize("page", ["README.md"])
def test_console_sessions(page):
    sessions = [block.content for block in blocks(page) if block.language == "console"]
    assert sessions
    for session in sessions:
        test = doctest.DocTestParser().get_doctest(
            session.partition(">>>")[1] + session.partition(">>>")[2], {}, page, page, 0
        )
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
        assert result.attempted > 0
        assert result.failed == 0


@pytest.mark.usefixtures("backend_package")
def test_python_blocks_of_the_device_module_page():
    (block,) = [block for block in blocks("docs/device-module.md") if block.language == "python"]
    run = subprocess.run(
        [sys.executable, "-c", "import torch\n" + block.content], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "small pool" in run.stdout
