"""Random graphs of dependencies between streams, under random delays, give what the same program gives in sequence.

``STREAM_GRAPHS=1000`` runs so many programs a configuration.
"""

import os
from pathlib import Path

import gates
import pytest

pytestmark = pytest.mark.once

PROGRAMS = int(os.environ.get("STREAM_GRAPHS", "50"))
SCRIPT = Path(__file__).parents[1] / "stream_graphs.py"


@pytest.fixture
def run(run_in_process, shim, name):
    """``run(programs, *words)``: what stream_graphs.py prints for so many programs, with these variables."""

    def start(programs, *words, shims="{gate}", **env):
        gate = shim("hold_streams")
        arguments = [str(SCRIPT), name, gate, "0", str(programs), *words]
        code = f"""
            import runpy, sys
            sys.argv = {arguments}
            sys.path.insert(0, {str(SCRIPT.parent)!r})
            runpy.run_path(sys.argv[0], run_name="__main__")
        """
        env = {f"{name.upper()}_{key}": value for key, value in {"SHIMS": shims.format(gate=gate), **env}.items()}
        return run_in_process(code, env=env, timeout=1000).stdout.split()

    return start


@pytest.mark.long_after_first
@pytest.mark.parametrize("stream", ["async", "inline", "async,delay=200,seed=3", "async,strict=on"])
@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_random_graphs(run, kind, stream):
    *wrong, _, steps = run(PROGRAMS, OPTIONS=f"kind={kind},stream={stream}")
    assert wrong == ["wrong", "{}"]
    assert int(steps) > PROGRAMS * 30


@pytest.mark.long
@pytest.mark.parametrize("stream", ["async", "inline"])
def test_random_graphs_on_emulated_streams(run, tmp_path, stream):
    options = {"OPTIONS": f"devices=2,emulate.stream={stream}", "DRIVER": gates.minimal_driver(tmp_path)}
    *wrong, _, steps = run(PROGRAMS, shims="{gate},emulate", **options)
    assert wrong == ["wrong", "{}"]
    assert int(steps) > PROGRAMS * 30


def test_without_the_waits_the_same_graphs_go_wrong(run):
    _, wrong, *_ = run(10, "--broken", OPTIONS="kind=unified,stream=async")
    assert int(wrong) >= 5
