"""FlagGems: each operator that it registers, in seven dtypes, and whether its kernels fit GPUs, against the CPU."""

import os
import tempfile
import zlib
from pathlib import Path

# Before the library: what it generates, and which configurations it found fast.
os.environ.setdefault("FLAGGEMS_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"flag-gems-{os.getuid()}"))

import pytest
import torch
import triton
from beside import tensors
from flag_gems_calls import INSTEAD, RANDOM, UNORDERED, calls, copied, overload
from flag_gems_wrong import WRONG
from one_configuration import one_configuration

from torch_backplane.triton.lowering import lower

LIBRARIES = ("flag_gems", "triton")
DTYPES = "float32 float16 bfloat16 float64 int32 int64 bool".split()
_SINGLE, _HALF = {"rtol": 1e-4, "atol": 1e-5}, {"rtol": 2e-3, "atol": 2e-3}
TOLERANCES = {  # most operators compute float64 in float32
    **{"float32": _SINGLE, "float64": _SINGLE, "float16": _HALF, "bfloat16": {"rtol": 2e-2, "atol": 2e-2}}
}
LOCAL = 64 << 10
"""Bytes of local memory that a group has on a GPU."""

with one_configuration():
    import flag_gems
    from flag_gems.ops import attention

OPERATORS = {entry[0]: entry[1] for entry in flag_gems._FULL_CONFIG if len(entry) < 3 or entry[2]()}
# Of its own kernels a call launches none: it arranges views, or calls other operators.
WITHOUT_KERNEL = {"conv1d.padding", "conv2d.padding", "resolve_conj", "resolve_neg"}


class Kernels:
    """The kernels that were launched, and the texts of those that were compiled or read from the cache."""

    def __init__(self):
        self.launched, self.compiled = set(), set()

    def __enter__(self):
        triton.knobs.runtime.launch_enter_hook.add(self._launch)
        triton.knobs.compilation.listener = self._compile
        return self

    def __exit__(self, *_):
        triton.knobs.runtime.launch_enter_hook.remove(self._launch)
        triton.knobs.compilation.listener = None

    def _launch(self, metadata):
        self.launched.add(metadata.get()["name"])

    def _compile(self, src, metadata, metadata_group, times, cache_hit):
        texts = [path for name, path in metadata_group.items() if name.endswith(".ttir")]
        self.compiled.update((metadata["name"], path) for path in texts)

    def large(self):
        """Those that need too much of local memory, in groups of 64 items with subgroups of 32."""
        texts = ((name, Path(path).read_text()) for name, path in self.compiled)
        sizes = {name: lower(text, 64, 32).local_bytes for name, text in texts}
        return {name: size for name, size in sizes.items() if size > LOCAL}


def sampled(key):
    return pytest.param(key, marks=[pytest.mark.sample] if zlib.crc32(key.encode()) % 70 == 0 else [])


def values(key, results, args):
    """Of an operator that orders as it likes: what it found, and what lies at the indices that it names."""
    found, places = results
    dim = args[UNORDERED[key]] if len(args) > UNORDERED[key] else -1
    return [found, args[0].gather(dim, places)]


def check(key, dtype, call, device):
    """One call, on the device and on the CPU."""
    function, reference = OPERATORS[key], INSTEAD.get(key) or overload(key)
    args, kwargs = copied(call)
    torch.manual_seed(0)
    expected = reference(*args, **kwargs)
    ours, named = copied(call, device)
    torch.manual_seed(0)
    if key in INSTEAD:
        found = function(*ours, **named)
        if key == "_flash_attention_forward":
            found = found[0]
    else:
        with flag_gems.use_gems(include=[function.__name__]):
            found = overload(key)(*ours, **named)
    if key in RANDOM:
        assert RANDOM[key](*[one.cpu() for one in tensors(found)])
        return
    if isinstance(expected, bool):
        assert found == expected
    if key in UNORDERED:
        expected = [*values(key, expected, args), found[0].cpu()]
        found = [*values(key, found, ours), found[0]]
    if key == "nll_loss_forward" and args[3] == 0:  # there is no total weight
        found, expected = found[0], expected[0]
    found = tensors((found, ours, named))
    assert {one.device for one in found} <= {device}
    torch.testing.assert_close(
        [one.cpu() for one in found],
        tensors((expected, args, kwargs)),
        equal_nan=True,
        check_dtype=key not in INSTEAD,
        **TOLERANCES.get(dtype, {}),
    )


def errors(key, device):
    """By dtype: what an operator raises, or how it differs from the CPU's."""
    found, tried = {}, 0
    for dtype in DTYPES:
        made = calls(key, getattr(torch, dtype))
        tried += len(made)
        for call in made[: 2 if dtype == "float32" else 1]:
            try:
                check(key, dtype, call, device)
            except Exception as error:  # whichever it is, it is reported
                found.setdefault(dtype, f"{type(error).__name__}: {error}")
    assert tried
    return found


@pytest.mark.parametrize("key", [sampled(key) for key in OPERATORS])
def test_operator(device, key):
    with Kernels() as kernels:
        wrong = errors(key, device)
    expected = {dtype for _, _, operators in WRONG if key in operators for dtype in operators[key].split()}
    assert set(wrong) == expected, wrong
    if not wrong:
        assert (not kernels.launched) == (key in WITHOUT_KERNEL)
    assert not kernels.large()


def test_attention(device, monkeypatch):
    """Forward and backward in float16, against the CPU's in float32.

    The backward pass has the library's first configuration: others leave out rows of the query's gradient.
    """
    first = triton.Config({"BLOCK_M1": 32, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 32})
    monkeypatch.setattr(attention._attn_bwd.fn, "configs", [first])
    q, k, v, slope = (torch.randn(1, 2, 96, 64, generator=torch.Generator().manual_seed(i)).half() for i in range(4))

    def results(function, place, dtype):
        given = [one.to(place, dtype).requires_grad_() for one in (q, k, v)]
        found = function(*given, is_causal=True)
        found.backward(slope.to(place, dtype))
        return [one.detach().cpu().float() for one in (found, *(one.grad for one in given))]

    with Kernels() as kernels:
        found = results(flag_gems.ops.scaled_dot_product_attention, device, torch.float16)
    expected = results(torch.nn.functional.scaled_dot_product_attention, "cpu", torch.float32)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() < 5e-3 * theirs.norm()
    assert {"_attn_fwd", "_attn_bwd"} <= kernels.launched
    assert not kernels.large()
