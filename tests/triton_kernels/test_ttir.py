"""A driver that compiles TTIR and not the dialect: the simulated device with ``languages=ttir``, in processes."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json
import sys
import warnings

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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = torch.compile(lambda a: (a + 1).relu().sum())(out)
    found["compiled"] = [compiled.item() - (want + 1).relu().sum().item(), [str(one.message) for one in caught]]
    compiler.save_record(record)
    found["precompiled"] = list(compiler.precompile(record, [compiler.target().name], folder))
print(json.dumps(found))
"""


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
    assert "program.py:32: device_print" in text
    assert "languages=dialect+ttir" in text
    kind, text = found["assembly"]
    assert kind == "RuntimeError"
    assert "program.py:37: tt.elementwise_inline_asm: inline assembly is one chip's" in text
    assert found["local"][0] == "OutOfResources"
    assert "65536" in found["local"][1]
    # Operators are the fallback's, for torch.compile too.
    assert found["eager"]
    difference, warned = found["compiled"]
    assert difference == pytest.approx(0, abs=1)
    assert any("torch.compile calls the operators of mydevice one by one" in text for text in warned)
    # A kernel of TTIR can be shipped as any other.
    assert {name for _, name, why in found["precompiled"] if why == ""} == {"places", "nothing", "cumulative"}
    again = run("cached", triton_cache="second")
    assert (again["equal"], again["counts"]) == (True, [0, 2])


def test_T16_without_python_the_error_says_what_is_needed(run, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no module here\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    with pytest.raises(AssertionError, match=r"no module here\s.*; install torch-backplane there, or name another"):
        run("cached", options=f"languages=ttir,python={python}", triton_cache="third")
