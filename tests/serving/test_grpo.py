"""vLLM on the device: completions for TRL's GRPO in the trainer's process, which takes its weights at each step"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARIES = ("trl", "vllm")


@pytest.mark.timeout(900)
def test_S09_grpo_takes_completions_of_the_weights_that_it_trains(folder, device):
    def trained(*words):
        program = [sys.executable, Path(__file__).with_name("grpo.py"), folder("llama"), *words]
        one = {**os.environ, f"{device.type.upper()}_VISIBLE_DEVICES": "0"}  # the Trainer uses all that it sees
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=400, env=one)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    found = trained()
    assert found["devices"] == [f"{device.type}:0"]
    assert found["changed"] > 0.9
    assert len(found["differences"]) == 3
    assert max(found["differences"]) < 0.1  # vLLM has the weights in bfloat16
    assert max(trained("stale")["differences"]) > 0.3
