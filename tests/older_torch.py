"""What torch before 2.13 has not, and the tests that need it: they are skipped there, each with its reason."""

from __future__ import annotations

import importlib.metadata
import re

VERSION = importlib.metadata.version("torch")
IS_OLDER = tuple(map(int, re.findall(r"\d+", VERSION)[:2])) < (2, 13)

NEEDS = {
    "torch.Tag.out and torch.Tag.inplace": (
        "test_check_op_samples.py::test_out_arguments_are_compared",
        "test_custom_op_arguments.py::test_C14_operators_tagged_inplace_and_out_return_what_they_wrote",
        "test_custom_op_autograd.py::test_C56_nor_one_tagged_out",
        "test_libraries.py::test_C79_D03_tags_are_given_and_read[<lambda>0]",
        "test_custom_ops_extras.py::test_C74_an_inplace_operator_returns_its_argument",
    ),
    "torch.library.register_autocast for devices other than CPU and CUDA": (
        "test_custom_ops_extras.py::test_C76_torchs_own_rule_refuses_keywords_and_keeps_the_first_dtype",
    ),
    "Inductor's lite mode": ("test_compile_without_kernels.py::",),
    "a torch.library.Library whose names go with it, and that may take the place of another": (
        "test_higher_order_ops.py::test_B24_an_exported_graph_threads_a_token_through_them",
        "test_higher_order_ops.py::test_B25_export_keeps_high_level_operators_on_the_device",
        "test_libraries.py::test_C77_a_library_that_ends_frees_operators_fakes_and_names[collection]",
        "test_libraries.py::test_D05_a_fallthrough_of_one_operator_passes_a_key_over_until_its_library_ends",
        "test_libraries.py::test_D11_torch_warns_once_a_process",
        "test_library_lifetimes.py::test_D11_the_newest_remaining_kernel_runs_in_any_order",
    ),
    "statistics of private pools": ("test_device_memory.py::test_private_pools_nest_and_count_their_uses",),
    "a meta kernel of pixel_shuffle with the strides of the CPU's": (
        "test_plans.py::test_shuffled_pixels[pixel_shuffle-(2, 8, 4, 6)-channels last]",
        "test_plans.py::test_shuffled_pixels[pixel_unshuffle-(2, 8, 4, 6)-channels last]",
    ),
}


def reason(nodeid: str) -> str:
    """What the test needs that this torch has not; empty if nothing."""
    for what, tests in NEEDS.items():
        if any(f"/{test}" in nodeid for test in tests):
            return f"torch {VERSION} has no {what}"
    return ""
