"""A driver that compiles TTIR and not the dialect: the simulated device with ``languages=ttir``, in processes."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json
import sys

import torch
import triton
import triton.language as tl
from torch_backplane import compiler


@triton.jit
def places(out, scale, n, wide, shift, BLOCK: tl.constexpr):
    program = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, at * scale + (wide >> shift), mask=at < n)


@triton.jit
def nothing():
    pass


@triton.jit
def cumulative(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))


@triton.jit
def talk(x):
    tl.device_print("value", tl.load(x))


@triton.jit
def assembly(x):
    tl.store(x, tl.inline_asm_elementwise("add", "=r,r", [tl.load(x)], tl.float32, is_pure=True, pack=1))


def error_of(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


kind, record, folder = sys.argv[1:]
x = torch.arange(32768.0, device="mydevice")
out = torch.full((1000,), -1.0, device="mydevice")
kernel = places[(3, 2, 5)](out, 0.5, 950, -(3 << 40), 40, BLOCK=32)
nothing[(2,)]()
want = torch.full((1000,), -1.0)
want[:950] = torch.arange(950) * 0.5 - 3
code = json.loads(kernel.asm["bpc"])
found = {
    "equal": torch.equal(out.cpu(), want),
    "parameters": code["parameters"],
    "is_ttir": "tt.func public @places" in code["ttir"],
    "counts": [compiler.counts().compiled, compiler.counts().from_cache],
    "available": [compiler.is_available(), compiler.is_available("ttir"), compiler.why_none()],
    "languages": compiler.target().languages,
    "grid": error_of(lambda: places[(2**31,)](out, 0.5, 950, 0, 0, BLOCK=32)),
}
if kind == "all":
    found["talk"] = error_of(lambda: talk[(1,)](x))
    found["assembly"] = error_of(lambda: assembly[(1,)](x))
    found["local"] = error_of(lambda: cumulative[(1,)](x, torch.empty_like(x), BLOCK=32768))
    found["eager"] = torch.equal((out @ out).cpu(), want @ want)
    compiler.save_record(record)
    found["precompiled"] = list(compiler.precompile(record, [compiler.target().name], folder))
print(json.dumps(found))
"""

COMPILED = """
import json
import sys
import warnings

if "without" in sys.argv:
    sys.modules["triton"] = None
import torch
import torch.nn.functional as F
from torch._inductor import config as settings
from torch._inductor.utils import run_and_get_code
from torch_backplane import compiler

DEVICE = "mydevice"
x, w, places = torch.randn(33, 70), torch.randn(70, 40), torch.tensor([3, 1, -1])
GRAPHS = {
    "rows": (lambda x: (x * 2).softmax(-1), [x]),
    "product": (lambda x, w: F.gelu(x @ w), [x, w]),
    "places": (lambda x, places: x[places] + 1, [x, places]),
    "sums": (lambda x, places, v: x.index_put((places,), v, accumulate=True), [x[:, 0].contiguous(), places, x[0, :3]]),
    "random": (lambda x: F.dropout(x, 0.5) + torch.rand_like(x), [x]),
}
found = {}
with warnings.catch_warnings(record=True) as caught, settings.patch(force_disable_caches=True):
    warnings.simplefilter("always")
    for name, (function, values) in GRAPHS.items():
        arguments = [one.to(DEVICE) for one in values]
        torch.manual_seed(0)
        want = function(*arguments)
        before = compiler.counts()
        torch.manual_seed(0)
        got, (code, *_) = run_and_get_code(torch.compile(function), *arguments)
        after = compiler.counts()
        difference = (got - want).abs().max().item()
        kernels = after.compiled + after.from_cache - before.compiled - before.from_cache
        found[name] = [difference, kernels, code.count("async_compile.triton(")]
    p = torch.nn.Linear(70, 8).to(DEVICE)
    torch.compile(p)(x.to(DEVICE)).square().sum().backward()
    got, p.weight.grad = p.weight.grad.clone(), None
    p(x.to(DEVICE)).square().sum().backward()
    found["gradient"] = (got - p.weight.grad).abs().max().item()
texts = {str(one.message) for one in caught}
print(json.dumps([found, [one for one in texts if one.startswith("torch.compile calls")]]))
"""


def run_compiled(*arguments, **environment):
    env = os.environ | {"MYDEVICE_OPTIONS": "languages=ttir"} | environment
    command = [sys.executable, "-c", COMPILED, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, warned = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("gradient") == pytest.approx(0, abs=1e-3)
    assert all(difference < 1e-4 for difference, *_ in found.values())
    return {name: counts for name, (_, *counts) in found.items()}, warned


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ttir")
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")

    def run_program(kind, options="languages=ttir,items=64", triton_cache="first"):
        env = os.environ | {
            "MYDEVICE_OPTIONS": options,
            "MYDEVICE_CACHE_DIR": str(folder / "cache"),
            "TRITON_CACHE_DIR": str(folder / triton_cache),
        }
        command = [sys.executable, str(program), kind, str(folder / "record.json"), str(folder / "kernels")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run_program


def test_T16_a_driver_of_ttir_alone(run):
    found = run("all")
    assert found["equal"]
    assert found["is_ttir"]
    assert found["parameters"] == "pfiii"
    assert (found["languages"], found["counts"]) == (["ttir"], [2, 0])
    assert found["available"][:2] == [False, True]
    assert found["available"][2].startswith("its driver compiles Triton's kernels alone (TTIR)")
    kind, text = found["grid"]
    assert kind == "ValueError"
    assert "places: the grid has 2147483648 programs along axis 0" in text
    # What does not compile has the lines of the user's kernels.
    kind, text = found["talk"]
    assert kind == "RuntimeError"
    assert "program.py:31: device_print" in text
    assert "languages=dialect+ttir" in text
    kind, text = found["assembly"]
    assert kind == "RuntimeError"
    assert "program.py:36: tt.elementwise_inline_asm: inline assembly is one chip's" in text
    assert found["local"][0] == "OutOfResources"
    assert "65536" in found["local"][1]
    assert found["eager"]  # by the fallback
    # A kernel of TTIR can be shipped as any other.
    assert {name for _, name, why in found["precompiled"] if why == ""} == {"places", "nothing", "cumulative"}
    again = run("cached", triton_cache="second")
    assert (again["equal"], again["counts"]) == (True, [0, 2])


def test_T16_a_compiled_program_is_kernels_of_triton():
    found, warned = run_compiled()
    assert warned == []
    for compiled, written in found.values():
        assert compiled >= written >= 1


@pytest.mark.parametrize(
    ("arguments", "environment", "why"),
    [
        (["without"], {}, "alone (TTIR), and Triton is not installed: pip install 'triton=="),
        ([], {"MYDEVICE_INDUCTOR": "dialect"}, "alone (TTIR), not the SDK's dialect"),
    ],
    ids=["without Triton", "dialect"],
)
def test_T16_operators_are_called_one_by_one_if_no_kernels_can_be_written(arguments, environment, why):
    found, (warned,) = run_compiled(*arguments, **environment)
    assert set(map(tuple, found.values())) == {(0, 0)}
    assert "torch.compile calls the operators of mydevice one by one" in warned
    assert why in warned


def test_T16_without_python_the_error_says_what_is_needed(run, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no module here\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    with pytest.raises(AssertionError, match=r"no module here\s.*; install torch-backplane there, or name another"):
        run("cached", options=f"languages=ttir,python={python}", triton_cache="third")
