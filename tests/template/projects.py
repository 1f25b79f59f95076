"""Answer sets, and separate environments in which rendered projects are built."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Two sets of names that share nothing with the template's own.
SHORT = {
    "device_name": "q",
    "package_name": "qpu",
    "project_name": "qpu",
    "vendor_name": "Q",
    "description": "Q",
    "author": "Q",
    "backplane_requirement": str(ROOT),
}
LONG = {
    "device_name": "hyperion_neural_engine_x",
    "package_name": "zeta_labs_torch_for_hyperion_v12",
    "project_name": "Zeta.Labs-torch_hyperion-12",
    "vendor_name": "Zeta & Söhne's Laboratories <Hyperion>",
    "description": "Zeta's engines for PyTorch & friends: 100 % of the operators, on cards that you can buy, today",
    "author": "Zeta & Söhne's Laboratories <Hyperion>, the runtime team",
    "backplane_requirement": "torch-backplane @ git+https://git.zeta.example/backplane.git@v0.1",
}


def questions() -> dict[str, object]:
    """The template's questions, without its private variables."""
    return {k: v for k, v in json.loads((ROOT / "cookiecutter.json").read_text()).items() if not k.startswith("_")}


def every_choice() -> Iterator[dict[str, str]]:
    """Every combination of the questions with a list of answers; a question that is added is in it."""
    lists = {name: values for name, values in questions().items() if isinstance(values, list)}
    for combination in itertools.product(*lists.values()):
        yield dict(zip(lists, combination, strict=True))


def run(*command: object, cwd: Path | None = None, env: dict[str, str] | None = None, check: bool = True) -> str:
    """Run a command, and return what it printed; a failure shows it."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or not check, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


def new(output_dir: Path, answers: dict[str, str], environment: Environment | None = None) -> Path:
    """Render by ``torch-backplane new``; of an environment, if one is given."""
    words = [f"{name}={value}" for name, value in answers.items()]
    arguments = ("-m", "backplane_tools", "new", "--no-input", "--output-dir", output_dir, *words)
    if environment is None:
        run(sys.executable, *arguments)
    else:
        environment.run(environment.python, *arguments)
    (project,) = output_dir.iterdir()
    return project


def build_sdk(source: Path, out: Path, **env: str) -> None:
    """Make the SDK's sdist, and the wheel from it, as ``make dist`` does."""
    words = ["-m", "build", "-q", "--no-isolation", "--outdir", out, source]
    run(sys.executable, *words, env={"SOURCE_DATE_EPOCH": "1700000000", **env})


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file's content and mode, by its path in the folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


class Environment:
    """A virtual environment that has what ours has (torch is not installed twice), but no SDK and no backend.

    Its packages are links to ours, which pip would write through: it has neither an index nor a folder to fetch others
    from, nor the machine's settings.

    Args:
        folder: where it is made.
        without: modules of ours that it lacks.
    """

    def __init__(self, folder: Path, without: tuple[str, ...] = ()) -> None:
        self.folder = folder
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.python = folder / "bin" / "python"
        self.site = Path(run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            ours = path.name.startswith(("torch_backplane", "backplane_tools", "backplane_sdk", "_editable_"))
            entry_points = path / "entry_points.txt"
            backend = entry_points.is_file() and "torch.backends" in entry_points.read_text()
            left_out = re.match(r"\w+", path.name)[0] in without
            if not (ours or backend or left_out or path.suffix == ".pth" or path.name == "__pycache__"):
                (self.site / path.name).symlink_to(path)
        for program in ("cmake", "ninja", "ruff", "clang-format", "pytest"):
            (folder / "bin" / program).symlink_to(Path(sys.executable).parent / program)
        self.env = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": "",
            "VIRTUAL_ENV": str(folder),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def run(self, *command: object, cwd: Path | None = None, **env: str) -> str:
        """Run a command with this environment's Python first on the path."""
        return run(*command, cwd=cwd or self.folder, env={**self.env, **env})

    def pip(self, *arguments: object) -> str:
        """Pip of this environment."""
        return self.run(self.python, "-m", "pip", *arguments)
