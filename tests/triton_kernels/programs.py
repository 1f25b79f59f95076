"""Programs that a test runs in a process of its own."""

import os
import subprocess
import sys

KERNELS = """
import os, sys
import torch, mydevice
import triton, triton.language as tl

module = torch.mydevice


@triton.jit
def double_rows(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def tensors(n=64):
    return torch.arange(float(n)).to("mydevice"), torch.empty(n, device="mydevice")


def attempt(call):
    try:
        return call()
    except Exception as error:
        print(type(error).__name__, str(error).replace(chr(10), " "))
"""


def run(folder, text, *words, status=0, path=(), **variables):
    """The output of a program that begins with KERNELS."""
    program = folder / "program.py"
    program.write_text(KERNELS + text)
    env = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, *words, str(program)], env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == status, done.stderr
    return done.stdout
