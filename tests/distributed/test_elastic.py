"""examples/distributed: a GPT under torchrun reaches the same loss when a rank is killed, and when another number of
ranks continues."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "distributed" / "train.py"


@pytest.fixture
def torchrun(backend_package):
    """``torchrun(ranks, *words)``: the lines that the example prints, as they come; it must end well."""
    started = []

    def run(ranks, *words):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        # Else the ranks that are started anew find addresses of the old ones: docs/distributed.md.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        process = subprocess.Popen(
            [*command, "--max-restarts=3", str(TRAIN), "--steps=40", "--save-every=10", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        printed = []
        for line in process.stdout:
            printed.append(line)
            yield line.strip()
        assert process.wait() == 0, "".join(printed)

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def losses(lines):
    """Step -> loss."""
    found = [re.match(r"step (\d+) of 40: loss ([\d.]+)", line) for line in lines]
    return {int(match[1]): float(match[2]) for match in found if match}


@pytest.fixture(scope="module")
def of_a_calm_run():
    """Filled by the first test that asks."""
    return {}


@pytest.fixture
def expected(torchrun, of_a_calm_run):
    """The losses of a run in which nothing happens."""
    if not of_a_calm_run:
        of_a_calm_run.update(losses(torchrun(2)))
    return of_a_calm_run


def test_G04_a_killed_rank(torchrun, expected, tmp_path):
    """torchrun restarts both ranks, and they continue from the last checkpoint."""
    lines, killed = [], False
    for line in torchrun(2, f"--checkpoints={tmp_path}"):
        lines.append(line)
        if line.startswith("step 20 of 40") and not killed:
            (process,) = [re.search(r"process (\d+)", text)[1] for text in lines if text.startswith("rank 1:")]
            os.kill(int(process), signal.SIGKILL)
            killed = True
    assert killed
    resumed = [int(line.split()[-1]) for line in lines if line.startswith("resumed from step")]
    assert resumed[0] in (10, 20, 30)
    found = losses(lines)
    assert found.keys() == expected.keys() == {10, 20, 30, 40}
    assert all(abs(found[step] - expected[step]) < 2e-3 for step in expected)


def test_G04_other_numbers_of_ranks(torchrun, expected, tmp_path):
    """A run of four stops at step 20; one of two takes its checkpoint."""
    first = list(torchrun(4, f"--checkpoints={tmp_path}", "--steps=20"))
    assert "step 20 of 20" in first[-1]
    lines = list(torchrun(2, f"--checkpoints={tmp_path}"))
    assert "resumed from step 20" in lines
    found = losses(lines)
    assert found.keys() == {30, 40}
    assert all(abs(found[step] - expected[step]) < 2e-3 for step in found)
