"""Attention over a cache in pages, and writing to the cache, against a plain formula."""

from functools import partial

import pytest
import torch

from portable.compare import each, on
from torch_backplane import compiler

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
PAGE = 16
LENGTHS = [1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE + 3]
ops = torch.ops.backplane


def made(lengths=LENGTHS, queries=None, heads=4, shared=2, size=32, dtype=torch.float32, cache=None, page=PAGE):
    """Operands: ``queries`` of each request; the pages of a request are anywhere, and others hold NaN."""
    queries = [1] * len(lengths) if queries is None else queries
    counts = [-(-one // page) for one in lengths]
    order = torch.randperm(sum(counts) + 3)
    table = order[-1].repeat(len(lengths), max(counts) + 2).int()
    pages = torch.full((len(order), page, shared, 2 * size), torch.nan)
    for row, count, used in zip(table, counts, order[: sum(counts)].split(counts), strict=True):
        row[:count] = used
        pages[used] = torch.randn(count, *pages.shape[1:])
    pages = pages.to(cache or dtype)
    return {
        "query": torch.randn(sum(queries), heads, size).to(dtype),
        "key_cache": pages[..., :size],
        "value_cache": pages[..., size:],
        "block_table": table,
        "seq_lens": torch.tensor(lengths, dtype=torch.int32),
        "query_starts": torch.tensor([0, *queries]).cumsum(0).int(),
        "scale": size**-0.5,
        "max_query_len": max(queries),
    }


def formula(
    query, key_cache, value_cache, block_table, seq_lens, query_starts, scale, max_query_len, causal=True, window=0,
    softcap=0.0, sinks=None, alibi_slopes=None, k_scale=None, v_scale=None,
):  # fmt: skip
    """Row by row and head by head, in float64."""
    out, page = torch.zeros(query.shape, dtype=torch.float64), key_cache.shape[1]
    for request, length in enumerate(seq_lens.tolist()):
        start, stop = query_starts[request : request + 2].tolist()
        at = [(int(block_table[request, key // page]), key % page) for key in range(length)]
        both = (key_cache, k_scale), (value_cache, v_scale)
        lines = [torch.stack([widened(cache, factor, one) for one in at]) for cache, factor in both if at]
        for row in range(start, stop):
            place = length - (stop - row)
            away = torch.arange(length) - place
            seen = (away <= 0 if causal else away < length) & (away.abs() < (window or length + place + 1))
            for head in range(query.shape[1]):
                keys, values = (one[seen, head * key_cache.shape[2] // query.shape[1]] for one in lines)
                scores = keys @ query[row, head].double() * scale
                scores = softcap * (scores / softcap).tanh() if softcap else scores
                if alibi_slopes is not None:
                    scores = scores + alibi_slopes[head].double() * away[seen]
                powers = scores.exp()
                total = powers.sum() + (0 if sinks is None else sinks[head].double().exp())
                out[row, head] = (powers / total) @ values
    return out


def widened(cache, scale, place):
    """A row of each head."""
    if scale is None:
        return cache[place].double()
    return cache[place].double() * (scale[place][:, None] if scale.dim() == 3 else scale).double()


def computed(place, operands):
    given = {key: on(place, one) for key, one in operands.items()}
    out = torch.full_like(given["query"], 7)
    ops.paged_attention(**given, out=out)
    return out


def check(device, ran, operands):
    expected = formula(**operands)
    assert expected.abs().max() > 0.1
    with ran("paged_attention"):
        got = computed(device, operands)
    same = partial(torch.testing.assert_close, rtol=TOLERANCE[got.dtype], atol=TOLERANCE[got.dtype])
    same(got.cpu().double(), expected)
    same(computed("cpu", operands).double(), expected)  # the composition


@pytest.mark.parametrize("dtype", each(FLOATS))
@pytest.mark.parametrize(("heads", "shared"), [(2, 2), (4, 1), (8, 1), (6, 2)])
@pytest.mark.parametrize("queries", [[1] * 5, [1, 3, PAGE, PAGE + 1, 70]], ids=["decode", "prompts"])
def test_K15_lengths_around_a_page(device, ran, dtype, heads, shared, queries):
    check(device, ran, made(queries=queries, heads=heads, shared=shared, dtype=dtype))


@pytest.mark.parametrize("queries", [[1, 1], [5, 37]], ids=["decode", "prompts"])
@pytest.mark.parametrize(
    "options",
    [
        {"window": 1},
        {"window": PAGE + 3},
        {"softcap": 2.0},
        {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
        {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625])},
        {"causal": False},
        {"causal": False, "window": 7, "softcap": 1.5, "sinks": torch.ones(4), "alibi_slopes": torch.full((4,), 0.1)},
        {"k_scale": torch.tensor(0.5), "v_scale": torch.tensor([3.0])},
    ],
    ids=lambda options: "-".join(options),
)
def test_K15_options(device, ran, queries, options):
    check(device, ran, made([40, 75], queries) | options)


@pytest.mark.parametrize("cache", FLOAT8)
@pytest.mark.parametrize("dtype", each(FLOATS))
def test_K15_a_cache_of_float8(device, ran, cache, dtype):
    scales = {"k_scale": torch.tensor(0.7), "v_scale": torch.tensor(1.9)}
    check(device, ran, made(queries=[1, 1, 2, 3, 20], cache=cache, dtype=dtype) | scales)


@pytest.mark.parametrize("cache", [torch.int8, *FLOAT8])
@pytest.mark.parametrize(
    "options", [{}, {"window": PAGE + 3, "softcap": 2.0, "sinks": torch.ones(4)}], ids=["", "options"]
)
def test_K15_a_cache_with_scales_of_rows(device, ran, cache, options):
    operands = made(queries=[1, 1, 2, 3, 20]) | options
    for name, scale in (("key_cache", "k_scale"), ("value_cache", "v_scale")):
        rows = operands[name] * torch.randint(1, 9, operands[name].shape[:3])[..., None]
        operands[scale] = rows.abs().amax(-1) / (127 if cache == torch.int8 else 300)
        rows = rows / operands[scale][..., None]
        operands[name] = (rows.nan_to_num(3).round() if cache == torch.int8 else rows).to(cache)
    operands["k_scale"], operands["v_scale"] = apart(operands["k_scale"] / 4), apart(operands["v_scale"])
    check(device, ran, operands)


def apart(scale):
    """With strides of their own, as in a page that has them beside the rows."""
    return torch.stack([scale.transpose(1, 2)] * 3, -1)[..., 1].transpose(1, 2)


@pytest.mark.long_after_first
@pytest.mark.parametrize(("size", "page"), [(1, 1), (8, 5), (72, 32), (128, 16), (256, 64)])
def test_K15_sizes_of_heads_and_pages(device, ran, size, page):
    check(device, ran, made([1, 33, 100], [1, 2, 40], heads=3, shared=3, size=size, page=page))


def test_K15_many_heads_share_one(device, ran):
    check(device, ran, made([9, 40], [1, 1], heads=96, shared=1, size=16))


def test_K15_layouts_and_dtypes_of_operands(device, ran):
    """A cache with heads before the tokens of a page, another dtype than the queries', 64-bit numbers, wide strides."""
    operands = made([20, 50], [2, 1], cache=torch.bfloat16)
    for name in ("key_cache", "value_cache"):
        operands[name] = operands[name].transpose(1, 2).contiguous().transpose(1, 2)
    for name in ("seq_lens", "query_starts"):
        operands[name] = operands[name].long()
    operands["block_table"] = operands["block_table"].long().repeat(1, 2)[:, : operands["block_table"].shape[1]]
    operands["query"] = torch.cat([operands["query"]] * 2, 1)[:, :4]
    check(device, ran, operands)


def test_K15_requests_without_keys_or_queries(device, ran):
    """Their rows are 0, and rows after the last request are left as they are."""
    operands = made([0, 5, 3, 0], [0, 2, 0, 1])
    expected = formula(**{**operands, "seq_lens": torch.tensor([0, 5, 3]), "query_starts": torch.tensor([0, 0, 2, 2])})
    operands["query"] = torch.cat([operands["query"], torch.randn(2, 4, 32)])
    with ran("paged_attention"):
        got = computed(device, operands)
    for found in (got.cpu(), computed("cpu", operands)):
        torch.testing.assert_close(found[:2].double(), expected[:2], rtol=2e-5, atol=2e-5)
        assert torch.equal(found[2], torch.zeros(4, 32))
        assert torch.equal(found[3:], torch.full((2, 4, 32), 7.0))


@pytest.mark.parametrize("name", ["block_table", "seq_lens", "query_starts"])
@pytest.mark.parametrize("value", [-1, 1000])
def test_K15_numbers_out_of_range_are_errors(device, name, value):
    operands = made([20, 50], [2, 3])
    wrong = operands[name].clone()
    wrong.view(-1)[1] = value
    operands[name] = wrong
    with pytest.raises(IndexError, match=f"paged_attention: index {value} is out of range"):
        computed(device, operands).cpu()  # at the next wait at the latest
    with pytest.raises((IndexError, RuntimeError)):
        computed("cpu", operands)
    assert torch.isfinite(computed(device, made([4], [1]))).all()


WRONG = {
    "query": (torch.randn(5, 4, 32, dtype=torch.float64), "query must be"),
    "key_cache": (torch.randn(3, PAGE, 2, 31), "key_cache must be"),
    "value_cache": (torch.randn(3, PAGE, 2, 32), "value_cache must be"),
    "block_table": (torch.zeros(3, 4, dtype=torch.int32), "block_table must be"),
    "seq_lens": (torch.ones(2), "seq_lens must be"),
    "query_starts": (torch.zeros(2, dtype=torch.int32), "query_starts must be"),
    "window": (-1, "window must be"),
    "softcap": (-1.0, "softcap must be"),
    "sinks": (torch.ones(3), "sinks must be 4"),
    "k_scale": (torch.ones(2), "k_scale must be 1"),
    "v_scale": (torch.ones(1, 1, 1), "scales of rows need a cache of 8 bits"),
}


@pytest.mark.parametrize("name", WRONG)
def test_K15_wrong_operands_are_errors(device, name):
    value, text = WRONG[name]
    operands = made([20, 50], [2, 3]) | {name: value}
    for place in (device, "cpu"):
        with pytest.raises(ValueError, match=text):
            computed(place, operands)


def test_K15_int8_without_scales_of_rows_is_an_error(device):
    operands = made([20, 50], cache=torch.int8) | {"k_scale": torch.ones(1)}
    for place in (device, "cpu"):
        with pytest.raises(ValueError, match="a cache of int8 needs"):
            computed(place, operands)


def test_K15_heads_that_do_not_divide_are_an_error(device):
    with pytest.raises(ValueError, match="must be a multiple of the 2"):
        computed(device, made([4], heads=3))


@pytest.mark.parametrize("cache", [*FLOATS, *FLOAT8])
@pytest.mark.parametrize("dtype", each(FLOATS))
def test_K15_writing(device, ran, dtype, cache):
    """Rows go to their slots; -1 is skipped, and so are rows without a slot; float8 saturates."""
    key, value = (torch.randn(7, 3, 24).to(dtype) * 300 for _ in range(2))
    slots = torch.tensor([PAGE, -1, 2 * PAGE + 5, 0, PAGE - 1])
    scales = {"k_scale": torch.tensor(0.5), "v_scale": torch.tensor(2.0)} if cache in FLOAT8 else {}
    pages = torch.zeros(4, PAGE, 3, 48).to(cache)
    expected = pages.clone().view(-1, 3, 48).float()
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            rows = torch.cat(
                [key[row].float() / scales.get("k_scale", 1), value[row].float() / scales.get("v_scale", 1)], 1
            )
            most = torch.finfo(cache).max if cache in FLOAT8 else torch.inf
            expected[slot] = rows.clamp(-most, most).to(cache).float()
    assert expected.isfinite().all()

    def written(place):
        both = on(place, pages)
        ops.paged_write(*on(place, [key, value]), both[..., :24], both[..., 24:], on(place, slots),
                        **{name: on(place, one) for name, one in scales.items()})  # fmt: skip
        return both.cpu().view(-1, 3, 48).float()

    with ran("paged_write"):
        got = written(device)
    assert torch.equal(got, expected)
    assert torch.equal(written("cpu"), expected)


@pytest.mark.parametrize("cache", [torch.int8, *FLOAT8])
@pytest.mark.parametrize("dtype", each(FLOATS))
def test_K15_writing_with_scales_of_rows(device, ran, dtype, cache):
    """The largest of each row becomes the largest number of 8 bits; a row of zeros is 0, one that is not finite NaN."""
    key, value = (torch.randn(7, 3, 70).to(dtype) * 30 for _ in range(2))
    key[3, 1], value[0, 2, 69], value[2, 0, 5] = 0, torch.nan, -torch.inf
    slots = torch.tensor([PAGE, -1, 2 * PAGE + 5, 0, PAGE - 1])
    most = 127.0 if cache == torch.int8 else torch.finfo(cache).max

    def written(place):
        pages, scales = torch.zeros(4, PAGE, 3, 140).to(cache), torch.zeros(2, 4, PAGE, 3)
        pages, scales = on(place, pages), apart(on(place, scales).flatten(0, 1)).unflatten(0, (2, 4))
        words = {"k_scale": scales[0], "v_scale": scales[1]}
        ops.paged_write(*on(place, [key, value]), *pages.split(70, -1), on(place, slots), **words)
        return pages.cpu().float().view(-1, 3, 140), scales.cpu().flatten(1, 2)

    with ran("paged_write"):
        got, scales = written(device)
    same, same_scales = written("cpu")
    assert torch.equal(got, same)
    torch.testing.assert_close(scales, same_scales, rtol=1e-6, atol=0)
    at = slots[slots >= 0]
    for rows, part, scale in zip((key, value), got.split(70, -1), scales, strict=True):
        rows, found = rows[:5][slots >= 0].float(), part[at]
        top = rows.abs().amax(-1)
        fine = rows.isfinite().all(-1)
        assert (found * scale[at][..., None])[~fine].isnan().all()
        near = 0.51 / 127 if cache == torch.int8 else 0.14
        assert ((found * scale[at][..., None] - rows).abs()[fine] <= near * top[fine][:, None]).all()
        assert (found.abs().amax(-1)[fine & (top > 0)] == most).all()
    assert scales[1].isinf().sum() == 2
    assert not got[[1, PAGE + 1, -1]].any()


@pytest.mark.parametrize("slot", [-2, 4 * PAGE])
def test_K15_slots_out_of_range_are_errors(device, slot):
    pages = torch.zeros(4, PAGE, 1, 8, device=device)
    rows = torch.ones(2, 1, 4, device=device)

    def write():
        ops.paged_write(rows, rows, pages[..., :4], pages[..., 4:], torch.tensor([1, slot], device=device))
        torch.accelerator.synchronize()

    with pytest.raises(IndexError, match=f"paged_write: index {slot} is out of range for {4 * PAGE} elements"):
        write()
    assert pages.sum() == 8


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"key": torch.ones(2, 2, 4)}, "key must be"),
        ({"key": torch.ones(2)}, "key must be"),
        ({"key_cache": torch.ones(2)}, "key_cache must be"),
        ({"value": torch.ones(2, 1, 4, dtype=torch.float16)}, "value must be"),
        ({"slots": torch.zeros(3, dtype=torch.int64)}, "slots must be at most 2"),
        ({"slots": torch.zeros(2)}, "slots must be"),
    ],
)
def test_K15_wrong_rows_are_errors(device, change, text):
    given = {"key": torch.ones(2, 1, 4), "value": torch.ones(2, 1, 4), "key_cache": torch.zeros(1, PAGE, 1, 4),
             "value_cache": torch.zeros(1, PAGE, 1, 4), "slots": torch.zeros(2, dtype=torch.int64)}  # fmt: skip
    for place in (device, "cpu"):
        with pytest.raises(ValueError, match=text):
            ops.paged_write(**{name: on(place, one) for name, one in (given | change).items()})


def test_K15_without_compiled_kernels_they_are_compositions(device):
    operands = made([20, 50], [2, 3], cache=torch.float8_e4m3fn)
    with compiler.using("off"):
        got = computed(device, operands)
    torch.testing.assert_close(got.cpu().double(), formula(**operands), rtol=2e-5, atol=2e-5)


def test_K15_a_compiled_step_writes_and_attends(device, ran):
    operands = on_device = {key: on(device, one) for key, one in made([20, 50]).items()}
    key = torch.randn(2, 2, 32, device=device)
    slots = torch.tensor([int(row[(length - 1) // PAGE]) * PAGE + (length - 1) % PAGE
                          for row, length in zip(operands["block_table"].tolist(), (20, 50), strict=True)])  # fmt: skip

    def step(key, slots, **given):
        out = torch.empty_like(given["query"])
        ops.paged_write(key, key + 1, given["key_cache"], given["value_cache"], slots)
        ops.paged_attention(**given, out=out)
        return out * 2

    expected = step(key, slots.to(device), **on_device)
    with ran("paged_attention"), ran("paged_write"):
        got = torch.compile(step, fullgraph=True)(key, slots.to(device), **on_device)
    torch.testing.assert_close(got, expected)


def test_K15_a_graph_reads_lengths_when_it_is_replayed(device, device_module):
    operands = {key: on(device, one) for key, one in made([20, 50]).items()}
    out = torch.empty_like(operands["query"])
    ops.paged_attention(**operands, out=out)
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        ops.paged_attention(**operands, out=out)
    for lengths in ([7, 50], [20, 1]):
        operands["seq_lens"].copy_(torch.tensor(lengths))
        graph.replay()
        expected = formula(
            **{key: one.cpu() if isinstance(one, torch.Tensor) else one for key, one in operands.items()}
        )
        torch.testing.assert_close(out.cpu().double(), expected, rtol=2e-5, atol=2e-5)
