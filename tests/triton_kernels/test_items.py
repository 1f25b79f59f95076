"""Groups of several items: what lies in local memory, shuffles, and the compilers of GPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import language as kernels
import pytest
import torch
import triton
import triton.language as tl

from torch_backplane import compiler
from torch_backplane.inductor.runtime import files_of
from torch_backplane.triton.lowering import lower

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "driver"))
from checker import Built  # noqa: E402

DEVICE = "mydevice"
ONE_ITEM = pytest.mark.skipif(compiler.target().group_size > 1, reason="it lowers for several items by itself")


def compiled(kernel, *arguments, **constants):
    """The kernel for groups of 64 items with subgroups of 32."""
    return lower(kernel.warmup(*arguments, grid=(1,), **constants).asm["ttir"], 64, 32)


def barriers(kernel):
    return kernel.text.count("BP_BARRIER();")


def tensor(dtype=torch.float32):
    return torch.empty(1, dtype=dtype, device=DEVICE)


def test_T18_what_items_read_at_their_own_places_is_not_in_local_memory():
    add = compiled(kernels.add, tensor(), tensor(), tensor(), 1000, BLOCK=1024)
    assert (add.local_bytes, barriers(add)) == (0, 0)
    norm = compiled(kernels.layer_norm, *[tensor()] * 5, 1000, 1e-5, BLOCK=1024)
    assert norm.local_bytes == 64 * 4  # what the two subgroups hand to one another


def test_T18_the_sums_of_a_product_are_not_in_local_memory():
    strides = (512, 1) * 3
    matmul = compiled(kernels.matmul, *[tensor()] * 3, 512, 512, 512, *strides, BM=64, BN=64, BK=32)
    assert (matmul.local_bytes, barriers(matmul)) == (2 * 64 * 32 * 4, 2)  # the factors, before and behind the product


def test_T18_arrays_that_are_needed_at_different_times_share_local_memory():
    x = tensor()
    orders = compiled(kernels.orders, *[x] * 7, tensor(torch.int32), M=8, N=32)
    assert orders.local_bytes <= 4 * 8 * 32 * 4


@triton.jit
def widened(x, y, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    left = tl.load(x + rows * K + depth[None, :]).to(tl.float32)
    right = tl.load(y + depth[:, None] * N + columns).to(tl.float32)
    tl.store(out + rows * N + columns, tl.dot(left, right))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_T18_halves_are_no_floats_where_local_memory_is_short(dtype):
    sizes = {"M": 128, "N": 128, "K": 64}
    large = compiled(widened, tensor(dtype), tensor(dtype), tensor(), **sizes)
    assert large.local_bytes == 2 * 128 * 64 * 2
    assert compiled(widened, *[tensor()] * 3, **sizes).local_bytes == 2 * 128 * 64 * 4
    assert compiled(widened, tensor(dtype), tensor(dtype), tensor(), M=64, N=64, K=64).local_bytes == 2 * 64 * 64 * 4
    x, y, out = torch.randn(128, 64, dtype=dtype), torch.randn(64, 128, dtype=dtype), torch.empty(128, 128)
    found = out.to(DEVICE)
    widened[(1,)](x.to(DEVICE), y.to(DEVICE), found, **sizes)
    torch.testing.assert_close(found.cpu(), x.float() @ y.float(), rtol=1e-4, atol=1e-4)


@triton.jit
def large_then_small(x, out, N: tl.constexpr):
    large, small = tl.arange(0, 4 * N), tl.arange(0, N)
    tl.store(out + large, tl.gather(tl.load(x + large), 4 * N - 1 - large, 0))
    a, b = tl.load(x + small) * 2, tl.load(x + N + small) * 3
    c, d = tl.load(x + 2 * N + small) * 5, tl.load(x + 3 * N + small) * 7
    for turn in range(2):
        at = (small + turn + 1) % N
        total = tl.gather(a, at, 0) - tl.gather(b, at, 0) + tl.gather(c, at, 0) - tl.gather(d, at, 0)
        tl.store(out + (4 + turn) * N + small, total)


def test_T18_small_arrays_share_the_memory_of_a_large_one():
    assert compiled(large_then_small, tensor(), tensor(), N=256).local_bytes == 4 * 256 * 4
    x, out = torch.randn(1024), torch.empty(1536, device=DEVICE)
    large_then_small[(1,)](x.to(DEVICE), out, N=256)
    a, b, c, d = x.reshape(4, 256)
    total = a * 2 - b * 3 + c * 5 - d * 7
    torch.testing.assert_close(out.cpu(), torch.cat([x.flip(0), total.roll(-1), total.roll(-2)]))


@triton.jit
def carried_pointers(x, y, out, n, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    p, q, total = x + at, y + at, tl.zeros([M, N], tl.float32)
    for _ in range(n):
        total += tl.load(p) - 2 * tl.reshape(tl.load(tl.trans(q)), (M, N))
        p, q = q + at % 3, p
    tl.store(out + at, total)


def test_T01_blocks_of_pointers_that_loops_carry():
    x, y, out = torch.randn(512), torch.randn(512), torch.empty(8, 32, device=DEVICE)
    carried_pointers[(1,)](x.to(DEVICE), y.to(DEVICE), out, 5, M=8, N=32)
    at = torch.arange(256).reshape(8, 32)
    total, (p, i), (q, j) = torch.zeros(8, 32), (x, at), (y, at)
    for _ in range(5):
        total += p[i] - 2 * q[j].t().reshape(8, 32)
        (p, i), (q, j) = (q, j + at % 3), (p, i)
    torch.testing.assert_close(out.cpu(), total, rtol=1e-5, atol=1e-5)


def own_cache(folder, **more):
    return {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), **more}


@pytest.mark.long
def test_T01_reductions_by_shuffles(tmp_path):
    names = "softmax or layer_norm or attention or orders or shapes or while_loop or early_return"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "simulated_shuffles", "-k", names]
    variables = own_cache(tmp_path, MYDEVICE_OPTIONS="items=32,stream=inline", OMP_NUM_THREADS="1")
    variables["PYTHONPATH"] = f"{HERE}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [*command, HERE / "test_language.py"], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    texts = [path.read_text() for path in (tmp_path / "triton").glob("*/*.bpc")]
    assert sum("= bp_as_f32(BP_SHUFFLE_XOR(" in text for text in texts) > 8


@ONE_ITEM
@pytest.mark.long
def test_T19_nvrtc_takes_every_kernel(tmp_path):
    """Without a GPU. What needs more local memory than NVRTC gives a kernel is refused by it."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", HERE / "test_language.py"]
    subprocess.run(command, env=own_cache(tmp_path), check=True, stdout=subprocess.DEVNULL)
    texts = {path.read_text() for path in (tmp_path / "triton").glob("*/*.ttir")}
    assert len(texts) > 60
    record, rows = tmp_path / "record.json", []
    for number, text in enumerate(sorted(texts)):
        kernel = lower(text, 256, 32)
        assert kernel.local_bytes <= 48 << 10
        rows.append({"name": f"{kernel.name}_{number}", "definitions": "", "files": files_of(""), "per_item": 1})
        rows[-1].update(text=kernel.text, host=False)
    record.write_text(json.dumps({"device": DEVICE, "kernels": rows}))
    command = [sys.executable, "-m", "backplane_tools", "precompile", "--record", record, "--out", tmp_path / "out"]
    variables = own_cache(tmp_path, MYDEVICE_DRIVER=str(Built(tmp_path).sdk_driver("cuda")), VIRTUAL_ENV=sys.prefix)
    variables.pop("MYDEVICE_OPTIONS", None)
    done = subprocess.run(
        [*command, "--target", "sm_90"], env=variables, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert done.stdout.startswith(f"{len(rows)} kernels in ")
