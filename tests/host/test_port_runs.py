"""torch-backplane port: what it writes for every accelerator runs, on stand-ins and where there is no accelerator."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from backplane_tools.port import Target, port_source

PROGRAMS = Path(__file__).parents[1] / "device" / "cuda_programs"
ALONE = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""}  # without an accelerator


def ported(source: str) -> str:
    result = port_source(source.encode(), Target())
    assert not result.problem
    assert not [place.reason for place in result.places if place.new is None]
    return result.content.decode()


class Storage:
    """As torch's: ``to`` takes its arguments by keyword alone."""

    def to(self, *, device, non_blocking=False):
        return device, non_blocking


def device(index):
    if index is None:
        raise TypeError("as torch.device does")
    return f"npu:{index}"


TORCH = SimpleNamespace(device=device, accelerator=SimpleNamespace(current_accelerator=lambda: "npu"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x.cuda()", ("npu", False)),
        ("x.cuda(non_blocking=True)", ("npu", True)),
        ("x.cuda(None)", ("npu", False)),
        ("x.cuda(device=None, non_blocking=True)", ("npu", True)),
        ("x.cuda(1)", (1, False)),
        ("x.cuda(  # the first\n 1, True)", (1, True)),
        ("x.cuda('cuda:1')", ("npu:1", False)),
        ("x.cuda(none)", ("npu", False)),
        ("x.cuda(none, True)", ("npu", True)),
        ("x.cuda((none))", ("npu", False)),
        ("x.cuda(one)", (1, False)),
        ("x.cuda(zero, non_blocking=True)", (0, True)),
        ("x.cuda(device=args.gpu)", ("npu", False)),
        ("x.cuda(gpus['b'][-1])", ("npu", False)),
        ("x.cuda(gpus['a'])", (3, False)),
        ("x.cuda(int('2'))", ("npu:2", False)),
        ("x.cuda(one % 2)", ("npu:1", False)),
        ("x.cuda(none or 4)", ("npu:4", False)),
        ("x.cuda(0 if one else 2)", ("npu:0", False)),
        ("x.cuda(torch.device('cuda:1'))", ("npu:npu:1", False)),
    ],
)
def test_cuda_calls_move_to_the_device_that_cuda_would_take(source, expected):
    names = {
        "x": Storage(), "none": None, "zero": 0, "one": 1, "args": SimpleNamespace(gpu=None),
        "gpus": {"a": 3, "b": [None]}, "torch": TORCH,
    }  # fmt: skip
    exec(ported(f"import torch\nresult = {source}\n").removeprefix("import torch\n"), names)
    assert names["result"] == expected


RUN = """
import json, runpy, sys, torch
assert not torch.accelerator.is_available()
print(json.dumps([runpy.run_path(path)["result"] for path in sys.argv[1:]]))
"""


def run_without_accelerator(paths: list[Path]) -> list[list[float]]:
    command = [sys.executable, "-c", RUN, *map(str, paths)]
    done = subprocess.run(command, env=ALONE, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ported_programs_run_without_an_accelerator_as_before(tmp_path):
    programs = [PROGRAMS / f"{name}.py" for name in ("checkpoint", "arguments", "mixed")]
    copies = [tmp_path / program.name for program in programs]
    for program, copy in zip(programs, copies, strict=True):
        copy.write_text(ported(program.read_text()))
    results = run_without_accelerator([*programs, *copies])
    assert all(results)
    assert results[: len(programs)] == results[len(programs) :]


@pytest.mark.parametrize(
    "call",
    [
        "manual_seed(5)",
        "manual_seed_all(5)",
        "seed()",
        "seed_all()",
        "get_rng_state_all()",
        "set_rng_state_all([])",
        "is_initialized()",
        "is_bf16_supported()",
        "is_available()",
        "device_count()",
    ],
)
def test_what_cuda_answers_without_a_gpu_is_answered_without_an_accelerator(call, without_accelerator):
    _, after = ported(f"import torch\ntorch.cuda.{call}").splitlines()
    assert without_accelerator(after) == without_accelerator(f"torch.cuda.{call}")


@pytest.fixture(scope="module")
def without_accelerator():
    """Evaluates expressions in a process without an accelerator."""
    code = "import sys, torch\nfor line in sys.stdin: print(repr(eval(line)), flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=ALONE,
    )  # fmt: skip

    def evaluate(expression: str) -> str:
        process.stdin.write(expression + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, expression
        return answer

    yield evaluate
    process.communicate()
