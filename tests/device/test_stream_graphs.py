"""Random graphs of dependencies between streams, under random delays, give what the same program gives in sequence.

``STREAM_GRAPHS=1000`` runs so many programs a configuration.
"""

import os
import subprocess
import sys
from pathlib import Path

import gates
import pytest

pytestmark = pytest.mark.once

PROGRAMS = int(os.environ.get("STREAM_GRAPHS", "100"))


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    return gates.build(tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="module")
def minimal_driver(tmp_path_factory):
    return gates.build_minimal(tmp_path_factory.mktemp("minimal"))


def run(name, gate, shims, first, last, *words, **env):
    script = Path(__file__).parent / "stream_graphs.py"
    command = [sys.executable, str(script), name, str(gate), str(first), str(last), *words]
    env = {f"{name.upper()}_{key}": value for key, value in env.items()} | {f"{name.upper()}_SHIMS": shims}
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.mark.long_after_first
@pytest.mark.parametrize(
    "stream",
    [
        "async",
        "inline",
        *(pytest.param(f"async,{more}", marks=pytest.mark.long) for more in ("delay=200,seed=3", "strict=on")),
    ],
)
@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_random_graphs(name, gate, kind, stream):
    *wrong, _, steps = run(name, gate, str(gate), 0, PROGRAMS, OPTIONS=f"kind={kind},stream={stream}")
    assert wrong == ["wrong", "{}"]
    assert int(steps) > PROGRAMS * 30


@pytest.mark.long_after_first
@pytest.mark.parametrize("stream", ["async", "inline"])
def test_random_graphs_on_emulated_streams(name, gate, minimal_driver, stream):
    options = {"OPTIONS": f"devices=2,emulate.stream={stream}", "DRIVER": str(minimal_driver)}
    *wrong, _, steps = run(name, gate, f"{gate},emulate", 0, PROGRAMS, **options)
    assert wrong == ["wrong", "{}"]
    assert int(steps) > PROGRAMS * 30


def test_without_the_waits_the_same_graphs_go_wrong(name, gate):
    _, wrong, *_ = run(name, gate, str(gate), 0, 10, "--broken", OPTIONS="kind=unified,stream=async")
    assert int(wrong) >= 5
