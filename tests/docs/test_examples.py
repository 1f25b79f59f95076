"""What the documents show is true: the demo trains, the README's console session prints what it says."""

import doctest
import re
import subprocess
import sys

import pytest
from pages import ROOT, code

DEMO = ROOT / "examples" / "demo"


@pytest.mark.long  # `make demo` runs the whole of it
@pytest.mark.usefixtures("backend_package")
def test_demo_trains_on_the_device():
    command = [sys.executable, DEMO / "demo.py", "--quick"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "done in" in run.stdout
    assert "mydevice:1" in run.stdout
    assert "The GPT by torch.compile" in run.stdout
    assert "MYDEVICE_INTEGRATIONS=auto" in run.stdout


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


@pytest.mark.long
def test_demo_fails_where_the_compiled_model_learns_something_else(lockstep):
    """By torch.compile on the CPU, with a model of three numbers."""
    import compiled
    import torch
    from rich.console import Console

    def learn(eager, why_not=""):
        torch.manual_seed(0)
        batches = [(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))] * 10
        console = Console(record=True, width=120)
        steps = lockstep.Steps(eager, eager, [], [0.0] * 10)
        compiled.learn_compiled(torch.nn.Linear(3, 3), batches, torch.device("cpu"), steps, why_not, console)
        return console.export_text()

    torch.manual_seed(0)
    batches = [(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))] * 10
    losses = list(lockstep.train(torch.nn.Linear(3, 3), batches))
    table = learn(losses)
    assert f"{losses[-1]:.3f}" in table
    assert "█" in table
    assert learn([], "there is no compiler").strip() == "torch.compile is left out: there is no compiler"
    with pytest.raises(SystemExit, match="begins with a loss"):
        learn([losses[0] + 0.1, *losses[1:]])
    with pytest.raises(SystemExit, match="ends with a loss"):
        learn([*losses[:-1], losses[-1] * 1.1])


@pytest.mark.usefixtures("backend_package")
def test_console_sessions():
    page = "README.md"
    sessions = code(page, "console")
    assert sessions
    for session in sessions:
        test = doctest.DocTestParser().get_doctest(session[session.index(">>>") :], {}, page, page, 0)
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
        assert result.attempted > 0
        assert result.failed == 0


@pytest.mark.usefixtures("backend_package")
@pytest.mark.long
@pytest.mark.parametrize("half", [[], ["--half", "float16"]], ids=["float32", "float16"])
def test_the_gallerys_cnn_learns_on_the_accelerator(half):
    run = subprocess.run(
        [sys.executable, ROOT / "examples/cnn/train.py", *half], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    right, device = re.findall(r"([\d.]+)% of 450 unseen digits are named right on (\S+)", run.stdout)[0]
    assert float(right) > 95
    assert device == "mydevice:0"


def test_the_gallery_shows_what_its_programs_print():
    """Each line of a page's output, its dots aside, is a text of the program."""
    shown = {name: f"examples/{name}/train.py" for name in ("cnn", "lora", "triton")}
    shown["gpt"] = "examples/distributed/train.py"
    for page, program in shown.items():
        source = (ROOT / program).read_text(encoding="utf-8")
        source = re.sub(r"\{[^}]*\}", "...", source)
        (said,) = code(f"docs/example-{page}.md", "text")
        for line in said.splitlines():
            for words in re.findall(r"[a-z]{4,}(?: [a-z]+)*", line.replace("mydevice", "...")):
                assert words in source, (page, words)
