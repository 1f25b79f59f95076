"""The table of supported features in docs/compile.md: each row has the tests that are named here."""

import ast
import functools
from pathlib import Path

import torch

TESTS = Path(__file__).resolve().parents[1]
COMPILE = TESTS.parent / "docs" / "compile.md"

# The first cell of each row of "Supported features", and its tests.
ROWS = {
    "pointwise, reductions, softmax and norms, fused": [
        "portable/test_compile_fusions.py::test_F14_what_is_joined",
        "portable/test_compile.py::test_F14_forward",
        "portable/test_compile.py::test_F14_backward",
    ],
    "halves computed in float32": [
        "portable/test_compile_settings.py::test_halves_are_rounded_as_by_eager_where_that_is_wanted",
        "portable/test_compile_fusions.py::test_F14_what_is_joined[halves in and out]",
    ],
    "float8 in, within and out of kernels, computed in float32": [
        "portable/test_compile_float8.py::test_F19_a_result_is_rounded",
        "portable/test_compile_float8.py::test_F19_an_argument_is_read",
        "portable/test_compile_float8.py::test_F19_within_a_kernel_it_is_rounded",
        "portable/test_compile_float8.py::test_F19_e8m0_is_moved_by_kernels_and_converted_by_operators",
    ],
    "indirect reads and sums into places (atomics)": [
        "portable/test_compile_fusions.py::test_F14_what_is_joined[gathered]",
        "portable/test_compile_fusions.py::test_F14_what_is_joined[sums into places]",
        "portable/test_compile_targets.py::test_a_sum_into_places_is_a_call_where_the_target_has_no_atomic_for_it",
    ],
    "an index that is out of range": [
        "portable/test_compile.py::test_F14_a_place_out_of_range_is_an_error_and_the_device_goes_on",
    ],
    "a division of integers by 0": [
        "portable/test_compile.py::test_F14_a_division_of_integers_by_zero_is_an_error_as_in_eager",
    ],
    "dynamic shapes without compiling again": [
        "portable/test_compile_fusions.py::test_F14_one_kernel_takes_all_sizes",
    ],
    "a number on the CPU (a tensor without dimensions) beside tensors": [
        "portable/test_compile_numbers.py::test_F22_a_number_on_the_cpu_comes_first",
        "portable/test_compile_numbers.py::test_F22_its_gradient_is_on_the_cpu",
    ],
    "what Python computes of sizes and items: quotients, `round`, `math.sin`": [
        "portable/test_compile_numbers.py::test_F22_what_a_program_makes_of_a_size",
        "portable/test_compile_numbers.py::test_F22_what_a_program_makes_of_an_item",
        "portable/test_compile_numbers.py::test_F22_a_target_without_doubles_takes_the_nearest_float",
    ],
    "random numbers (dropout, `rand`, `randn`, `randint`)": [
        "portable/test_compile_random.py::test_F20_floats[dropout]",
        "portable/test_compile_random.py::test_F20_whole_numbers",
        "portable/test_compile_random.py::test_F20_a_graph_takes_its_numbers_at_once",
    ],
    "split reductions": ["portable/test_compile_fusions.py::test_a_large_reduction_is_split"],
    "scans (`cumsum`, `cumprod`, `logcumsumexp`, `cummax`, `cummin`)": [
        "portable/test_compile_scans.py::test_F18_scans_are_generated_kernels",
    ],
    "sort, topk, bucketize": [
        "portable/test_compile_ops.py::test_sorts_and_searches_are_the_devices_operators_among_fused_kernels",
    ],
    "another stream for a part (`with stream:`, `with torch.mydevice.stream(stream):`), `synchronize()`": [
        "portable/test_compile_settings.py::test_a_part_of_a_program_runs_on_another_stream",
        "device/tracing/test_compile_queries.py::test_F21_a_wait_is_part_of_the_graph",
    ],
    "queries of devices: `is_available`, `device_count`, `current_device`, properties": [
        "device/tracing/test_compile_queries.py::test_F21_a_query_is_a_constant_of_the_graph",
    ],
    "combined kernels (`config.combo_kernels`), `foreach`": [
        "portable/test_compile_combined.py::test_a_list_is_one_launch",
        "portable/test_compile_combined.py::test_kernels_of_a_program_are_combined_where_that_is_wanted",
    ],
    "`config.cpp_wrapper`": ["portable/test_aoti.py::test_F17_cpp_wrapper_computes_what_eager_does"],
    "AOTInductor": [
        "portable/test_aoti.py::test_F17_a_package_is_loaded_and_computes",
        "portable/test_aoti.py::test_F17_a_package_runs_in_a_program_without_python",
        "portable/test_aoti.py::test_an_operator_that_a_package_cannot_call_is_refused_by_name",
    ],
    "`scaled_dot_product_attention`": [
        "portable/test_compile_attention.py::test_fused_attention_is_the_devices_operator"
    ],
    "`flex_attention`, forward and backward": [
        "portable/test_compile_attention.py::test_flex_attention_is_generated",
        "portable/test_compile_attention.py::test_one_kernel_stands_between_the_products",
    ],
    "templates for matrix products, `max_autotune`": [
        "portable/test_compile_max_autotune.py::test_one_kernel_instead_of_two",
        "portable/test_compile_fusions.py::test_F14_what_is_joined[around a convolution]",
    ],
    'graphs (`mode="reduce-overhead"`, `"max-autotune"`)': [
        "portable/test_compile_replay.py::test_F26_the_second_call_is_recorded_and_later_ones_replay",
        "portable/test_compile_replay.py::test_F26_training_is_eagers_bit_by_bit",
    ],
}


def table(page: str) -> list[str]:
    """The first cell of each row of the table below "Supported features"."""
    section = page.partition("\n## Supported features\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ")[0].strip() for line in lines if not line.startswith("| |")]


@functools.cache
def known_in(path: str) -> tuple[set[str], set[str]]:
    """The functions of a file of tests, and the keys of its dicts, which name cases."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys]
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return functions, {key.value for key in keys if isinstance(key, ast.Constant)}


def exists(reference: str) -> bool:
    """Whether there is such a test; a case is written behind it in brackets."""
    path, _, test = reference.partition("::")
    function, _, case = test.rstrip("]").partition("[")
    functions, cases = known_in(path)
    return function in functions and (not case or case in cases)


def test_each_row_of_the_document_has_its_tests():
    assert table(COMPILE.read_text(encoding="utf-8")) == list(ROWS)


def test_what_is_named_is_a_test():
    references = {one for tests in ROWS.values() for one in tests}
    assert sorted(one for one in references if not exists(one)) == []
    assert not exists("portable/test_compile.py::test_F14_forwards")
    assert not exists("portable/test_compile.py::test_F14_forward[no such case]")


def test_remote_caches_are_as_torch_leaves_them(device, monkeypatch):
    """Off, unless the user turns them on; graphs are kept in the local cache."""
    from torch._dynamo.utils import counters
    from torch._functorch import config as functorch
    from torch._inductor import config, remote_cache
    from torch._inductor.utils import fresh_cache

    made = []

    def make(self, cache_id):
        made.append(type(self).__name__)
        raise RuntimeError("there is none")

    monkeypatch.setattr(remote_cache.RedisRemoteCache, "__init__", make)
    call = torch.compile(lambda x: (x + 1).softmax(1))
    x = torch.randn(5, 7, device=device)

    def compile_anew():
        torch._dynamo.reset()
        call(x)

    with fresh_cache():
        counters.clear()
        compile_anew()
        compile_anew()
        assert counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"] > 0
    assert made == []
    for name in ("fx_graph_remote_cache", "autotune_remote_cache", "bundled_autotune_remote_cache"):
        assert config._is_default(name), name
    assert functorch._is_default("enable_remote_autograd_cache")
    with fresh_cache(), config.patch(fx_graph_remote_cache=True):
        compile_anew()
    assert made != []  # so the above would have been seen
