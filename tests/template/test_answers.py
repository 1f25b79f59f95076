"""Bad answers are refused by both ways in, with a text that says what to answer."""

import json
import os
import sys

import pytest
from projects import ROOT, run

from backplane_tools.cli.new import checks, render

BAD = [
    ("device_name", "npu0", "no digits"),
    ("device_name", "NPU", "lower-case"),
    ("device_name", "my-device", "lower-case"),
    ("device_name", "_npu", "Begin with a letter"),
    ("device_name", "", "must not be empty"),
    ("device_name", "cuda", "torch has a device type"),
    ("device_name", "privateuseone", "torch has a device type"),
    ("device_name", "lambda", "word of Python"),
    ("device_name", "relu", "torch.relu"),
    ("device_name", "backward", "Tensor.backward"),
    ("device_name", "contiguous", "Tensor.is_contiguous"),
    ("device_name", "train", "Module.train"),
    ("device_name", "test", "target or library"),
    ("device_name", "torch_cpu", "target or library"),
    ("device_name", "n" * 25, "24 are the most"),
    ("package_name", "my-device", "underscores"),
    ("package_name", "2npu", "underscores"),
    ("package_name", "Npu", "lower-case"),
    ("package_name", "nüpu", "underscores"),
    ("package_name", "../npu", "underscores"),
    ("package_name", "class", "word of Python"),
    ("package_name", "private", "word of C++"),
    ("package_name", "json", "standard library"),
    ("package_name", "torch", "the project needs"),
    ("package_name", "torch_backplane", "the project needs"),
    ("package_name", "backplane_tools", "the project needs"),
    ("project_name", "-npu", "begin and end with a letter"),
    ("project_name", "my npu", "letters, digits"),
    ("project_name", "Torch_Backplane", "another project"),
    ("vendor_name", 'Acme "Chips"', "quotation marks"),
    ("vendor_name", "Acme\\Chips", "backslashes"),
    ("vendor_name", " Acme", "begin or end with a space"),
    ("description", "one\ntwo", "line breaks"),
    ("description", "{{ cookiecutter.author }}{% raw %}", "braces"),
    ("author", "", "must not be empty"),
    ("license", "GPL", "BSD-3-Clause, Apache-2.0"),
    ("driver", "emulate", "sim, opencl, vulkan, cuda, minimal, minimal_cpp"),
    ("ci", "gitlab", "github, none"),
    ("kernels", "examples", "portable, add, none"),
]


@pytest.mark.parametrize(("question", "answer", "text"), BAD)
def test_new_refuses(tmp_path, question, answer, text):
    with pytest.raises(ValueError, match=f"^{question} is ") as error:
        render({question: answer}, tmp_path)
    assert text in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.long_after_first
@pytest.mark.parametrize(
    ("question", "answer", "text"),
    [row for row in BAD if row[1] in {"cuda", "relu", "json", 'Acme "Chips"', "npu0", "GPL"}],
)
def test_cookiecutter_refuses(tmp_path, question, answer, text):
    """The hook, as cookiecutter runs it: the rows whose quoting could go wrong, and one of each kind."""
    command = ["cookiecutter", "--no-input", "-o", tmp_path / "out", ROOT, f"{question}={answer}"]
    said = run(*command, cwd=tmp_path, env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}, check=False)
    assert not list((tmp_path / "out").glob("*")), said
    if question not in {"license", "driver", "kernels", "ci"}:  # cookiecutter itself knows the lists
        assert "The project was not written:" in said
        assert text in said


def test_several_problems_are_listed_at_once(tmp_path):
    with pytest.raises(ValueError, match="device_name") as error:
        render({"device_name": "cuda", "package_name": "json"}, tmp_path)
    assert "package_name is 'json'" in str(error.value)


def test_an_unknown_question_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown question 'divice_name'; the template asks: device_name"):
        render({"divice_name": "npu"}, tmp_path)


def test_a_project_that_exists_is_kept(tmp_path):
    project = render({}, tmp_path)
    (project / "README.md").write_text("mine\n")
    with pytest.raises(FileExistsError, match="--overwrite"):
        render({}, tmp_path)
    assert (project / "README.md").read_text() == "mine\n"
    render({}, tmp_path, overwrite=True)
    assert (project / "README.md").read_text() != "mine\n"


def test_new_asks_again_after_a_bad_answer(tmp_path):
    from click.testing import CliRunner

    from backplane_tools.cli.new import new

    answers = ["cuda", "npu", *[""] * 10]
    done = CliRunner().invoke(new, ["--output-dir", str(tmp_path)], input="\n".join(answers) + "\n")
    assert done.exit_code == 0, done.output
    assert "torch has a device type of that name" in done.output
    assert (tmp_path / "npu" / "pyproject.toml").is_file()


def test_the_command_line_reports_a_bad_answer_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "backplane_tools", "new", "--no-input", "device_name=cuda"]
    said = run(*command, cwd=tmp_path, check=False)
    assert "Error: device_name is 'cuda'" in said
    assert "Traceback" not in said


def test_new_needs_no_torch(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from backplane_tools.cli import main; main()"
    run(sys.executable, "-c", code, "new", "--no-input", "--output-dir", tmp_path)
    assert (tmp_path / "mydevice").is_dir()


def test_help_imports_no_command(tmp_path):
    code = (
        "import sys\nfrom backplane_tools.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('backplane_tools.cli.') or m in ('torch', 'cookiecutter')])"
    )
    said = run(sys.executable, "-c", code, cwd=tmp_path)
    assert said.endswith("[]\n")
    assert "check-driver" in said


# What a device name may hide in torch: the owners on which torch's rename and its generated methods set attributes.
NAMES_OF_TORCH = """
import json, pkgutil, re, torch
from torch.nn.utils.rnn import PackedSequence
owners = [torch, torch.Tensor, torch.nn.Module, torch.UntypedStorage, torch.TypedStorage, PackedSequence]
names = {name for owner in owners for name in dir(owner)}
names |= {module.name for module in pkgutil.iter_modules(torch.__path__)}
names |= {name[3:] for name in names if name.startswith("is_")}
try:
    torch.device("no_such_device")
except RuntimeError as error:
    types = re.search("one of (.*) device type", str(error)).group(1).split(", ")
print(json.dumps([sorted(name for name in names if re.fullmatch("[a-z][a-z_]*", name)), types]))
"""


def test_the_list_of_names_holds_against_the_installed_torch():
    """After a change of torch, add what this names to TORCH_NAMES or TORCH_DEVICE_TYPES in hooks/pre_gen_project.py."""
    said = run(sys.executable, "-c", NAMES_OF_TORCH, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    names, types = json.loads(said.splitlines()[-1])
    assert len(names) > 900
    assert sorted(set(names) - checks().TORCH_NAMES) == []
    assert sorted(set(types) - checks().TORCH_DEVICE_TYPES) == []


@pytest.mark.parametrize("name", ["mydevice", "npu", "tpu", "acme", "q", "hyperion_neural_engine_x"])
def test_usual_device_names_pass(name):
    assert checks().refuse("device_name", name) is None


def test_the_hook_is_plain_python():
    """``torch-backplane new`` imports it unrendered, so it must compile as it is."""
    path = ROOT / "hooks" / "pre_gen_project.py"
    compile(path.read_text(), os.fspath(path), "exec")
