"""Every operator that Inductor may ask a backend for is generated, a call of the device's, or never asked for."""

import re
from pathlib import Path

from torch._inductor.codegen.common import OpOverrides
from torch._inductor.ops_handler import OpsHandler

from torch_backplane.inductor.fallbacks import lacking
from torch_backplane.inductor.kernel import GroupKernel
from torch_backplane.inductor.ops import DialectOps

COMPILE = Path(__file__).resolve().parents[2] / "docs" / "compile.md"

# What Inductor asks of some devices only, or for features that this backend does not declare; in one version or more.
NEVER_ASKED = {
    "bucketize": "BackendFeature.BUCKETIZE",
    "device_assert_async": "a call: fallbacks.ASSERTS",
    "dot": "a template of Triton's",
    "fmaximum": "Triton's softmax of two passes, of torch 2.15",
    "halide_clamp": "Halide's own",
    "inline_asm_elementwise": "a higher-order operator of CUDA's",
    "output": "of graphs in which Inductor keeps an operator, which no kernel writes",
    "partial_accumulate": "Triton's reductions of two orders",
    "placeholder": "as output",
    "rand_eager": "config.align_random_eager, of CUDA alone",
    "sort": "BackendFeature.SORT",
}
# What Inductor writes for any backend whose language is C's.
OF_C = {"and_", "bitwise_and", "bitwise_or", "bitwise_xor", "load_seed", "lshift", "or_", "rshift", "xor"}
OF_C |= {"add", "sub", "mul", "eq", "ne", "lt", "gt", "le", "ge"}
NAMES = sorted(name for name in vars(OpsHandler) if not name.startswith("_"))


def kinds_of(name):
    """What this backend does with an operator: one of these."""
    generated = name in vars(DialectOps) or name in vars(GroupKernel)
    return [
        *["generated"] * (generated and name not in {*NEVER_ASKED, *lacking()}),
        *["inherited"] * (name in OF_C and getattr(DialectOps, name) is not getattr(OpsHandler, name)),
        *["a call"] * (name in lacking()),
        *["never asked for"] * (name in NEVER_ASKED),
    ]


def test_an_operator_is_generated_or_a_call_or_never_asked_for():
    assert {name: kinds for name in NAMES if len(kinds := kinds_of(name)) != 1} == {}


def test_what_is_listed_is_an_operator():
    assert set(lacking()) | OF_C <= set(NAMES)
    assert issubclass(DialectOps, OpOverrides)


def test_the_document_names_what_the_dialect_does_not_have():
    [listed] = re.findall(r"^Operators without an expression: (.+?)\.$", COMPILE.read_text(), re.MULTILINE | re.DOTALL)
    assert re.findall(r"`(\w+)`", listed) == lacking()
