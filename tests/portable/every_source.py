"""Uses every source of the kernel library with one dtype: ``python every_source.py float32``.

What a run wants is in the file that MYDEVICE_RECORD_KERNELS names (test_compilers.py).
"""

import sys

import mydevice  # noqa: F401
import torch
import torch.nn.functional as F

DEVICE = "mydevice"


def moves(dtype):
    """What any dtype has."""
    x = torch.ones(6, 40, 30, device=DEVICE).to(dtype)
    rows, places = x.flatten(1), torch.arange(6, device=DEVICE)
    torch.cat([x, x], 1)
    x.roll(3, 1)
    x.mT.contiguous()
    x[places, places]
    x.gather(0, places.reshape(6, 1, 1))
    x.nonzero()
    x.sum()
    x.amax(1)
    x.sort(1)
    torch.ones(100_000, device=DEVICE).to(dtype).sort()
    torch.where(x == 1, x, x)
    rows.index_select(1, places)


def numbers(dtype):
    """What bool does not support."""
    x = torch.ones(6, 40, 30, device=DEVICE).to(dtype)
    flat = x.flatten()
    x + 2 * x
    flat.cumsum(0)
    flat.mode()
    flat.kthvalue(7)
    torch.ones(3, 60_000, device=DEVICE).to(dtype).topk(5)
    torch._foreach_add([flat, x], 1)
    torch.use_deterministic_algorithms(True)
    flat.index_add(0, torch.zeros(9, dtype=torch.long, device=DEVICE), flat[:9])
    torch.use_deterministic_algorithms(False)
    torch.empty_like(x).random_(0, 9)
    torch.randperm(100, device=DEVICE)


def floats(dtype):
    """What needs fractions."""
    leaf = torch.randn(2, 8, 12, 12, device=DEVICE, dtype=torch.float32).to(dtype).requires_grad_()
    x = leaf * 1.5
    square = x[0, 0]
    rows = x.flatten(1)
    results = [x.exp(), F.gelu(x), x.std((2, 3)), x.softmax(1), rows @ rows.mT, x @ square, square.mv(square[0])]
    results.append(F.conv2d(x, torch.ones(4, 8, 3, 3, device=DEVICE, dtype=dtype)))
    results.append(F.conv2d(x, torch.ones(8, 1, 3, 3, device=DEVICE, dtype=dtype), groups=8))
    results.append(F.conv_transpose2d(x, torch.ones(8, 4, 3, 3, device=DEVICE, dtype=dtype), stride=2))
    results += [
        F.layer_norm(x, (12,)),
        F.batch_norm(x, None, None, training=True),
        F.dropout(x),
        torch.special.i1(square.detach()),
    ]
    results += [F.max_pool2d(x, 3, 2, return_indices=True)[0], F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 5)]
    results += [F.interpolate(x, size=20, mode=mode) for mode in ("nearest", "bilinear", "bicubic")]
    results += [F.pad(x, (2, 1, 1, 2), mode=mode) for mode in ("reflect", "replicate")]
    results.append(F.grid_sample(x, torch.zeros(2, 5, 5, 2, device=DEVICE, dtype=dtype), align_corners=False))
    results.append(F.cross_entropy(rows, torch.zeros(2, dtype=torch.long, device=DEVICE)))
    results.append(torch.randn(4, 9000, device=DEVICE).to(dtype) @ torch.randn(9000, 4, device=DEVICE).to(dtype))
    wide = torch.randn(200, 150, device=DEVICE).to(dtype)
    results += [wide @ wide.mT, x.logcumsumexp(1)]
    sum(result.float().sum() for result in results).backward()
    torch.empty_like(square).normal_()
    if dtype != torch.float64:
        attention(dtype)
        paged(dtype)


def attention(dtype):
    """Few queries and many, with the gradient."""
    leaf = torch.ones(1, 2, 20, 64, device=DEVICE, dtype=dtype, requires_grad=True)
    mask = torch.ones(20, 20, device=DEVICE, dtype=dtype)
    for options in ({"is_causal": True}, {"attn_mask": mask}, {"attn_mask": mask > 0}):
        F.scaled_dot_product_attention(leaf, leaf, leaf, **options).sum().backward()
    F.scaled_dot_product_attention(leaf[:, :, :4], leaf, leaf)


def paged(dtype):
    """Caches of the dtype, of float8 and of int8, single tokens and prompts."""
    pages, starts = torch.zeros(2, 1, dtype=torch.int32, device=DEVICE), torch.arange(3, device=DEVICE)
    for cache in (dtype, torch.float8_e4m3fn, torch.int8):
        keys, values = torch.zeros(1, 16, 2, 128, device=DEVICE).to(cache).split(64, -1)
        for count in (1, 4):
            rows = torch.ones(2 * count, 8, 64, device=DEVICE, dtype=dtype)
            scale = torch.ones(1, 16, 2, device=DEVICE)
            scales = {"k_scale": scale, "v_scale": scale.clone()} if cache == torch.int8 else {}
            slots = torch.arange(count, device=DEVICE)
            torch.ops.backplane.paged_write(rows[:, :2], rows[:, :2], keys, values, slots, **scales)
            words = {"scale": 0.125, "max_query_len": count, "sinks": rows[0, :, 0].contiguous(), "softcap": 1.0}
            given = rows, keys, values, pages, starts[:2] + count, starts * count
            torch.ops.backplane.paged_attention(*given, rows.clone(), **words, **scales)


def generated(dtype):
    """Kernels of torch.compile: each way to lay out lanes, and what generated.bpc has."""
    x = torch.ones(300, 70, device=DEVICE).to(dtype)
    places = torch.arange(70, device=DEVICE)

    @torch.compile
    def all_of_them(x, places):
        results = [x + x, x.t() + x.t().flip(0), x.sum(1), x.sum(0), x.amax(1), x.argmax(0), x[:, places]]
        if dtype.is_floating_point:
            results += [x.softmax(1), x.softmax(0), x.var(1), x.var(0), x // 3, x % 3, torch.rand_like(x), x.frexp()[0]]
            results += [x.nextafter(x * 2), torch.special.ndtr(x)] if dtype.itemsize >= 4 else []
        elif dtype != torch.bool:
            results += [x // 3, x % 3, x**2, x << 1]
        if dtype not in (torch.bool, torch.bfloat16, torch.int64):
            results.append(torch.zeros_like(x).index_put((places,), x[:70], accumulate=True))
        return results

    all_of_them(x, places)
    parts = [x, x[0], x.t(), x[:, :7].sum(1)]  # of one kernel: lists, and what does not depend on each other
    torch.compile(lambda parts: torch._foreach_maximum(torch._foreach_mul(parts, parts), parts))(parts)
    combined = {"combo_kernels": True, "fx_graph_cache": False}
    torch.compile(lambda x, y: (x.sum(1), y.amax(0), y[places[:5]], x * x), options=combined)(x, x.t().contiguous())


def products(dtype):
    """Kernels of tiles that torch.compile measures: of each size, with what follows joined to one of them."""
    a, b, c = (torch.ones(*shape, device=DEVICE).to(dtype) for shape in ((3, 70, 40), (3, 40, 50), (3, 1, 50)))
    options = {"max_autotune": True, "autotune_local_cache": False, "fx_graph_cache": False}
    torch.compile(lambda a, b, c: torch.baddbmm(c, a, b, beta=2).sin(), options=options)(a, b, c)


def complex_numbers(dtype):
    """What complex numbers have."""
    leaf = torch.randn(6, 40, device=DEVICE, dtype=dtype).requires_grad_()
    x = leaf.conj() * (2 + 1j) / leaf + 1
    results = [x.exp(), x.log(), x.sqrt(), x.sin(), x.tan(), x.atan(), x.asin(), x.acosh(), x**2.5, x.sgn()]
    results += [x.sigmoid(), x.angle()]
    results += [torch.where(x.real > 0, x, 1j), x.prod(1), x.cumprod(0), x.cumsum(1), x.mean(), x @ x.mH]
    results.append(torch.linalg.vector_norm(x, dim=1))
    sum(result.abs().sum() for result in results).backward()
    x.t().to(torch.float16).to(dtype)
    (x == x.flip(0)).any()
    x.to(torch.bool)
    x.index_select(0, torch.arange(3, device=DEVICE))


def small_floats(dtype):
    """What floats of eight bits have."""
    x = torch.randn(6, 40, device=DEVICE).to(dtype)
    for other in (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64):
        x.t().to(other).to(dtype)
    torch.where(x == 1, x, x)
    x.isnan()
    torch.cat([x, x], 1)


def plain(dtype):
    """What the dialect computes in."""
    moves(dtype)
    if dtype != torch.bool:
        numbers(dtype)
    if dtype.is_floating_point:
        floats(dtype)
        products(dtype)
    generated(dtype)


if __name__ == "__main__":
    dtype = getattr(torch, sys.argv[1])
    is_small = dtype.is_floating_point and dtype.itemsize == 1
    (complex_numbers if dtype.is_complex else small_floats if is_small else plain)(dtype)
    torch.accelerator.synchronize()
