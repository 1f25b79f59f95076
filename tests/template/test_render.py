"""Every answer set renders to files that are clean: no template left, no stray name, no lint error."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from projects import LONG, ROOT, SHORT, every_choice, files, questions, run

import backplane_sdk
from backplane_tools.cli.new import default_answer, render
from backplane_tools.conformance.expected import Expected

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHOICES = list(every_choice())


def slug(answers: dict[str, str]) -> str:
    return "-".join(answers.values())


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Renders an answer set once."""
    made: dict[str, Path] = {}

    def project(answers: dict[str, str]) -> Path:
        key = repr(sorted(answers.items()))
        if key not in made:
            made[key] = render(answers, tmp_path_factory.mktemp("project"))
        return made[key]

    return project


NAMES = {"default": {}, "short": SHORT, "long": LONG}
SETS = {f"{name}-{slug(choice)}": {**names, **choice} for name, names in NAMES.items() for choice in CHOICES}


def a_part(argument: str, sets: dict[str, dict[str, str]]) -> pytest.MarkDecorator:
    """Every set. All but every 13th, in which each choice and all names are, are long."""
    params = [
        pytest.param(answers, id=name, marks=[pytest.mark.long] if i % 13 else [])
        for i, (name, answers) in enumerate(sets.items())
    ]
    return pytest.mark.parametrize(argument, params)


def test_the_part_has_every_choice():
    for sets in (list(SETS.values()), CHOICES):
        part = sets[::13]
        assert {value for answers in part for value in answers.items()} >= {
            item for choice in CHOICES for item in choice.items()
        }
    assert {name.partition("-")[0] for name in list(SETS)[::13]} == set(NAMES)


@a_part("answers", SETS)
def test_a_project_is_clean(rendered, answers):
    """Nothing of the template is left, its own lint passes, and the answers are in it."""
    project = rendered(answers)
    nothing_is_left(project, answers)
    env = {"RUFF_NO_CACHE": "true"}
    run("ruff", "check", ".", cwd=project, env=env)
    run("ruff", "format", "--check", ".", cwd=project, env=env)
    code = [path for path in project.rglob("*") if path.suffix in {".c", ".cpp", ".h"}]
    assert code
    run("clang-format", "--dry-run", "-Werror", *code, cwd=project)
    answers_arrive(project, answers)


def nothing_is_left(project, answers):
    for path in project.rglob("*"):
        name = str(path.relative_to(project))
        text = path.read_text() if path.is_file() else ""
        left = re.search(r"cookiecutter\.|\{%|%\}|(?<!\$)\{\{ |TODO|FIXME", name + text)  # ${{ is GitHub's own
        assert not left, f"{name}: {left.group()}"
        if "device_name" in answers:
            assert "mydevice" not in (name + text).lower(), name
            assert "my vendor" not in text.lower(), name
        assert text == "" or text.endswith("\n"), name
        assert not re.search(r"[ \t]+$", text, re.MULTILINE), name
        assert "\n\n\n\n" not in text, name


def answers_arrive(project, answers):
    pyproject = tomllib.loads((project / "pyproject.toml").read_text())
    package = answers.get("package_name", "mydevice")
    assert project.name == package
    assert pyproject["project"]["name"] == answers.get("project_name", "torch-mydevice")
    assert pyproject["project"]["description"] == answers.get("description", "My Vendor devices for PyTorch")
    assert pyproject["project"]["authors"] == [{"name": answers.get("author", "My Vendor")}]
    device = answers.get("device_name", "mydevice")
    loads = f"{package}:_autoload"
    assert pyproject["project"]["entry-points"] == {
        "torch.backends": {device: loads},
        "torch.distributed.backends": {f"{device}ccl": loads},
        "triton.backends": {device: "torch_backplane.triton"},
    }
    assert f"\n  {device}\n  PACKAGE {package}\n" in (project / "CMakeLists.txt").read_text()
    requirement = answers.get("backplane_requirement", "torch-backplane ~= 0.1")
    assert f"\nSDK ?= {requirement}\n" in (project / "Makefile").read_text()
    assert requirement in (project / "README.md").read_text()
    assert answers.get("vendor_name", "My Vendor") in (project / "LICENSE").read_text()


@pytest.mark.long_after_first
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_V05_its_workflow_is_one_to_github(rendered, names):
    project = rendered({**names, "ci": "github"})
    run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", ".github/workflows/ci.yml", cwd=project)


@a_part("choice", {slug(choice): choice for choice in CHOICES})
def test_choices_decide_which_files_there_are(rendered, choice):
    project = rendered({**SHORT, **choice})
    assert (project / ".github" / "workflows" / "ci.yml").is_file() == (choice["ci"] == "github")
    source = {"minimal": "minimal_driver.c", "minimal_cpp": "minimal_driver.cpp"}.get(choice["driver"])
    assert sorted(path.name for path in (project / "backend" / "driver").glob("*.c*")) == ([source] if source else [])
    driver = f"backend/driver/{source}" if source else choice["driver"]
    assert f"DRIVER {driver}\n" in (project / "CMakeLists.txt").read_text()
    assert source is None or f"`{source}`" in (project / "backend" / "driver" / "README.md").read_text()
    kernels = choice["kernels"]
    # The simulated device alone runs functions of the host's; the portable kernels have an add.
    add = ["add.cpp"] if (choice["driver"], kernels) == ("sim", "add") else []
    assert [path.name for path in (project / "backend" / "kernels").glob("*")] == add
    on_host = [
        path.name for path in (project / "backend").rglob("*.cpp") if ": backplane::HostKernel" in path.read_text()
    ]
    assert on_host == add
    assert (project / "tests" / "test_add.py").exists() == (kernels != "none")
    sdks = "portable " if kernels == "portable" else ""
    assert f"  KERNELS {sdks}${{kernels}}\n" in (project / "CMakeLists.txt").read_text()
    with_examples = ("tests/test_swiglu.py", "backend/operators", "python/qpu/ops.py")
    for path in with_examples:
        assert (project / path).exists() == (kernels == "portable")
    words = {
        "BSD-3-Clause": "Redistribution and use",
        "Apache-2.0": "Apache License",
        "MIT": "Permission is hereby granted",
        "Proprietary": "All rights reserved.\n",
    }
    text = (project / "LICENSE").read_text()
    assert [name for name, word in words.items() if word in text] == [choice["license"]]


def test_conformance_is_a_chore_and_a_job(rendered):
    """The list of expected failures has torch's own; CI runs every shard; the extra that it needs is asked for."""
    project = rendered({**LONG, "ci": "github"})
    suites = {entry.suite for entry in Expected.read(project / "conformance.toml").entries}
    assert suites == {"compiled*", "cuda-dtypes", "distributed"}
    assert "[[expected]]" in (project / "conformance.toml").read_text()
    assert "\ntorch-backplane[conformance]\n" in (project / "requirements-dev.txt").read_text()
    workflow = (project / ".github" / "workflows" / "ci.yml").read_text()
    shards = re.search(r"shard: \[(.*)\]", workflow).group(1).split(", ")
    assert shards == [str(i + 1) for i in range(len(shards))]
    (command,) = re.findall(r"run: make conformance (.*)", workflow)
    assert f"--shard ${{{{ matrix.shard }}}}/{len(shards)}" in command
    said = run("make", "-n", "conformance", "ARGS=--shard 2/4", cwd=project)
    assert "backplane_tools conformance --json build/conformance.json --html build/conformance.html --shard 2/4" in said


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (LONG["backplane_requirement"], LONG["backplane_requirement"]),
        ("torch-backplane ~= 0.1", "torch-backplane ~= 0.1"),
        ("/opt/sdk", "torch-backplane ~= 0.1"),
        ("../sdk", "torch-backplane ~= 0.1"),
        ("torch-backplane @ file:///opt/sdk", "torch-backplane ~= 0.1"),
    ],
)
def test_ci_uses_no_local_folder(rendered, requirement, expected):
    project = rendered({**SHORT, "ci": "github", "backplane_requirement": requirement})
    workflow = (project / ".github" / "workflows" / "ci.yml").read_text()
    assert workflow.startswith("# Builds, lints, ")
    assert f"\nenv:\n  SDK: ${{{{ vars.SDK || '{expected}' }}}}\n" in workflow
    assert (requirement in workflow) == (requirement == expected)
    for given, wanted in (({}, requirement), ({"SDK": "theirs"}, "theirs")):
        assert f"pip install '{wanted}' -r requirements-dev.txt" in run("make", "-n", "setup", cwd=project, env=given)


def test_one_place_of_ci_installs_the_vendors_runtime(rendered):
    """Each job that installs torch to build or run the project runs it first, by the name that the file says."""
    project = rendered({**LONG, "ci": "github"})
    workflow = (project / ".github" / "workflows" / "ci.yml").read_text()
    live = "\n".join(line for line in workflow.splitlines() if not line.lstrip().startswith("#"))
    jobs = re.split(r"^  (\w[\w-]*):\n", live.partition("\njobs:\n")[2], flags=re.MULTILINE)
    with_it = {
        name: [step.group(1) for step in re.finditer(r"run: (bash \S+|pip install torch|make setup)", steps)]
        for name, steps in zip(jobs[1::2], jobs[2::2], strict=True)
        if "make setup" in steps
    }
    first = ["bash .github/install-runtime.sh", "pip install torch", "make setup"]
    assert with_it == {name: first for name in ("test", "conformance", "wheels", "board")}
    assert workflow.count("name: Install the vendor's runtime\n") == len(with_it)
    script = project / ".github" / "install-runtime.sh"
    run("bash", script, cwd=project)
    assert "the vendor's runtime" in script.read_text().splitlines()[1]
    lines = [
        line.removeprefix("# ") for line in script.read_text().splitlines() if line.startswith(("# sudo", "# echo"))
    ]
    assert len(lines) == 2
    run("bash", "-n", "-c", "\n".join(lines))


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_V05_ci_holds_the_driver_against_its_contract(rendered, names):
    """Before torch's tests, which require it: the embedded driver in the job `test`, the vendor's own on the board."""
    project = rendered({**names, "ci": "github"})
    device, package = names.get("device_name", "mydevice"), names.get("package_name", "mydevice")
    workflow = (project / ".github" / "workflows" / "ci.yml").read_text()
    live = "\n".join(line for line in workflow.splitlines() if not line.lstrip().startswith("#"))
    for job in ("test", "board"):
        steps = re.split(r"\n  (?=\w)", live.partition(f"\n  {job}:\n")[2])[0]
        order = [steps.index(f"run: make {word}") for word in ("setup", "check-driver", "test")]
        assert order == sorted(order)
    # Without a board's labels the job is left out; a driver that is not named is the package's own.
    assert "    if: vars.BOARD != ''\n    runs-on: ${{ fromJSON(vars.BOARD) }}\n" in live
    assert f"      {device.upper()}_DRIVER: ${{{{ vars.DRIVER }}}}\n" in live
    said = run("make", "-n", "check-driver", "ARGS=--only x", cwd=project, env={f"{device.upper()}_DRIVER": ""})
    own = f"'build/{package}/lib/lib{device}_driver.so'"
    assert f"backplane_tools check-driver {own} --junit build/check-driver.xml --only x\n" in said
    said = run("make", "-n", "check-driver", cwd=project, env={f"{device.upper()}_DRIVER": "/opt/v/lib driver.so"})
    assert "check-driver '/opt/v/lib driver.so' --junit" in said


@pytest.mark.parametrize(
    ("driver", "check"), [("opencl", "dialect.overflow"), ("vulkan", "dialect.launches"), ("sim", "")]
)
def test_what_the_runtime_of_ci_fails_is_expected(rendered, driver, check):
    """By the job that runs on it, not by that of the board."""
    project = rendered({"driver": driver, "ci": "github"})
    workflow = yaml.safe_load((project / ".github" / "workflows" / "ci.yml").read_text())
    found = {
        job: [step["run"] for step in workflow["jobs"][job]["steps"] if "check-driver" in step.get("run", "")]
        for job in ("test", "board")
    }
    expect = re.findall(r"ARGS=\"--expect '([\w.]+)=[^'\"]+'\"$", found["test"][0])
    assert expect == [check] * bool(check)
    assert found["board"] == ["make check-driver PYTHON=python"]
    expected = tomllib.loads((project / "conformance.toml").read_text())["expected"]
    assert [one["case"] for one in expected if "driver/" in one["case"]] == [f"driver/{check}"] * bool(check)


@pytest.mark.parametrize("driver", questions()["driver"])
def test_ci_installs_what_the_driver_that_it_starts_with_needs(rendered, driver):
    """A runner has neither an OpenCL runtime nor a Vulkan driver: PoCL and lavapipe are. No GPU has a substitute."""
    script = (rendered({"driver": driver, "ci": "github"}) / ".github" / "install-runtime.sh").read_text()
    commands = [line for line in script.splitlines()[3:] if line and not line.startswith("#")]
    assert commands == {
        "opencl": [
            "set -euo pipefail",
            "sudo apt-get update",
            "sudo apt-get install -y ocl-icd-libopencl1 pocl-opencl-icd",
        ],
        "vulkan": [
            "set -euo pipefail",
            "sudo apt-get update",
            "sudo apt-get install -y libvulkan1 mesa-vulkan-drivers",
        ],
    }.get(driver, ["set -euo pipefail"])


@pytest.mark.parametrize("driver", questions()["driver"])
def test_the_readme_speaks_of_the_driver_in_use(rendered, driver):
    """It stays true when the vendor's own driver has taken the place of the one that the project starts with."""
    text = (rendered({"driver": driver}) / "README.md").read_text()
    assert "the tests, on the driver in use" in text
    assert "simulated" not in text


@pytest.mark.parametrize(
    ("package", "project"),
    [("acme", "torch-acme"), ("torch_acme", "torch-acme"), ("acme_torch", "acme-torch"), ("npu_v2", "torch-npu-v2")],
)
def test_the_projects_name_says_torch_once(package, project):
    assert default_answer("project_name", {"package_name": package}) == project


@pytest.mark.long_after_first
@pytest.mark.parametrize("by", ["torch-backplane", "cookiecutter"])
def test_what_pip_compiles_of_the_template_stays_out(tmp_path, by):
    """Of an installed SDK pip compiles every Python file, the template's too."""
    installed = tmp_path / "installed"
    for part in ("cookiecutter.json", "hooks", "{{cookiecutter.package_name}}"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        (installed / part).parent.mkdir(exist_ok=True)
        copy(ROOT / part, installed / part)
    run(sys.executable, "-m", "compileall", "-q", installed, check=False)
    assert list(installed.rglob("tests/__pycache__/test_device.*.pyc"))
    if by == "cookiecutter":
        command = ["cookiecutter", "--no-input", "-o", tmp_path / "out", installed]
        run(*command, env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)})
    else:
        code = (
            "import pathlib, sys, backplane_tools.cli.new as new\n"
            "new.template_dir = lambda: pathlib.Path(sys.argv[1])\n"
            "new.render({}, pathlib.Path(sys.argv[2]))"
        )
        run(sys.executable, "-c", code, installed, tmp_path / "out")
    assert (tmp_path / "out" / "mydevice" / "tests" / "test_device.py").is_file()
    assert list((tmp_path / "out").rglob("*.pyc")) == []
    assert list((tmp_path / "out").rglob("__pycache__")) == []


def test_a_project_is_short(rendered):
    """A vendor should know all of it: about 600 lines beside the licence, and no file long."""
    lengths = {name: content.count(b"\n") for name, (content, _) in files(rendered({})).items() if name != "LICENSE"}
    assert sum(lengths.values()) < 800
    assert max(lengths.values()) < 200, max(lengths, key=lengths.__getitem__)


@pytest.mark.long_after_first
@pytest.mark.parametrize("choice", [CHOICES[0], CHOICES[-1]], ids=slug)
@pytest.mark.parametrize("names", [LONG, {}], ids=["long", "default"])
def test_cookiecutter_gives_equal_files(rendered, tmp_path, choice, names):
    answers = {**names, **choice}
    env = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    words = [f"{name}={value}" for name, value in answers.items()]
    for template in (ROOT, os.path.relpath(ROOT, tmp_path)):  # from anywhere, by either kind of path
        out = tmp_path / f"by_cookiecutter_{Path(template).is_absolute()}"
        run("cookiecutter", "--no-input", "-o", out, template, *words, cwd=tmp_path, env=env)
        (project,) = out.iterdir()
        assert files(project) == files(rendered(answers))


def test_every_question_has_a_prompt():
    prompts = json.loads((ROOT / "cookiecutter.json").read_text())["__prompts__"]
    assert list(prompts) == list(questions())
    for name, values in questions().items():
        if isinstance(values, list):
            assert set(prompts[name]) - {"__prompt__"} <= set(values)


def test_files_that_the_sdk_has_too_are_equal():
    template = ROOT / "{{cookiecutter.package_name}}"
    assert (template / ".clang-format").read_bytes() == (ROOT / ".clang-format").read_bytes()
    for source in ("minimal_driver.c", "minimal_driver.cpp"):
        minimal = template / "backend" / "driver" / source
        assert minimal.read_bytes() == (ROOT / "examples" / "minimal_driver" / source).read_bytes()


def test_the_template_asks_for_this_sdk():
    minor = ".".join(backplane_sdk.__version__.split(".")[:2])
    template = json.loads((ROOT / "cookiecutter.json").read_text())
    assert template["_backplane"] == minor
    assert template["backplane_requirement"] == f"torch-backplane ~= {minor}"
