"""Each operator of Inductor's that is generated, by its value: lowered directly, against eager on the CPU."""

import pytest
import torch
from torch import special
from torch._inductor import ir, lowering, virtualized

from portable.test_compile_coverage import NAMES, NEVER_ASKED, OF_C
from torch_backplane.inductor.fallbacks import lacking
from torch_backplane.inductor.kernel import GroupKernel
from torch_backplane.inductor.ops import DialectOps

pytestmark = pytest.mark.usefixtures("each_compiles")

FLOATS, PAIRS, TRIPLES = ("x",), ("x", "y"), ("x", "y", "z")
INTS, INT_PAIRS, SHIFTS, BOOLS = ("i",), ("i", "j"), ("i", "few"), ("a", "b")

# What is read, and eager's function.
EAGER = {
    **{
        name: (FLOATS, getattr(torch, name))
        for name in (
            "abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor isinf isnan "
            "lgamma log log10 log1p log2 neg reciprocal relu round rsqrt sigmoid sign signbit sin sinh sqrt square tan "
            "tanh trunc"
        ).split()
    },
    **{name: (FLOATS, getattr(special, name)) for name in "digamma i0 i0e i1 i1e log_ndtr ndtr ndtri".split()},
    **{
        name: (PAIRS, getattr(torch, name))
        for name in (
            "add atan2 copysign eq fmod ge gt hypot le lt maximum minimum mul ne nextafter pow remainder sub"
        ).split()
    },
    **{name: (BOOLS, getattr(torch, name)) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: (INT_PAIRS, getattr(torch, name)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: (SHIFTS, getattr(torch, name)) for name in ("bitwise_left_shift", "bitwise_right_shift")},
    "bitwise_not": (INTS, torch.bitwise_not),
    "logical_not": (("a",), torch.logical_not),
    "and_": (BOOLS, torch.logical_and),
    "or_": (BOOLS, torch.logical_or),
    "xor": (BOOLS, torch.logical_xor),
    "lshift": (SHIFTS, torch.bitwise_left_shift),
    "rshift": (SHIFTS, torch.bitwise_right_shift),
    "identity": (FLOATS, torch.clone),
    "fma": (TRIPLES, lambda x, y, z: (x.double() * y.double() + z.double()).float()),
    "mul_rn": (PAIRS, torch.mul),
    "div_rn": (PAIRS, torch.div),
    "truediv": (PAIRS, torch.div),
    "int_truediv": (INT_PAIRS, torch.div),
    "floordiv": (INT_PAIRS, lambda i, j: i // j),
    "truncdiv": (INT_PAIRS, lambda i, j: torch.div(i, j, rounding_mode="trunc")),
    "mod": (INT_PAIRS, torch.fmod),
    "ldexp": (("x", "few"), torch.ldexp),
    "where": (("a", "x", "y"), torch.where),
    "ceil_to_int": (FLOATS, lambda x: x.ceil().long()),
    "floor_to_int": (FLOATS, lambda x: x.floor().long()),
    "round_to_int": (FLOATS, lambda x: x.round().long()),
    "trunc_to_int": (FLOATS, lambda x: x.trunc().long()),
    "to_dtype": (FLOATS, lambda x: x.long()),
    "to_dtype_bitcast": (FLOATS, lambda x: x.view(torch.int32)),
}

# Arguments that are no elements.
MORE = {name: (torch.int64,) for name in ("ceil_to_int", "floor_to_int", "round_to_int", "trunc_to_int", "to_dtype")}
MORE["to_dtype_bitcast"] = (torch.int32, torch.float32)

# Operators around expressions; test_compile.py and its neighbours have programs with each of them.
AROUND = {
    "check_bounds", "constant", "frexp", "index_expr", "indirect_indexing", "load", "load_seed", "masked", "rand",
    "randint64", "randn", "reduction", "scan", "store", "store_reduction", "value_expr",
}  # fmt: skip

_library = torch.library.Library("backplane_tests", "DEF")
_library.define("expression(Tensor[] read, str name, ScalarType dtype) -> Tensor")
torch.library.register_fake(
    "backplane_tests::expression", lambda read, name, dtype: read[0].new_empty(read[0].shape, dtype=dtype)
)
expression = torch.ops.backplane_tests.expression


@lowering.register_lowering(expression.default, type_promotion_kind=None)
def _lower(read, name, dtype):
    loads = [one.make_loader() for one in read]

    def element(index):
        return getattr(virtualized.ops, name)(*(load(index) for load in loads), *MORE.get(name, ()))

    device = read[0].get_device()
    return ir.Pointwise.create(device=device, dtype=dtype, inner_fn=element, ranges=list(read[0].get_size()))


@pytest.fixture(scope="module")
def values():
    generator = torch.Generator().manual_seed(0)
    count = 131
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, float("inf"), -float("inf"), float("nan")])

    def floats():
        return torch.cat(
            [ends[torch.randperm(len(ends), generator=generator)], torch.randn(120, generator=generator) * 3]
        )

    def ints(low, high):
        return torch.randint(low, high, (count,), generator=generator)

    j = ints(-9, 9)
    return {
        "x": torch.cat([ends, torch.linspace(-4, 4, 120)]),
        "y": floats(),
        "z": floats(),
        "i": ints(-(2**40), 2**40),
        "j": torch.where(j == 0, 7, j),
        "few": ints(0, 8),
        "a": ints(0, 2) > 0,
        "b": ints(0, 2) > 0,
    }


def arguments_of(name, values):
    read, _ = EAGER[name]
    if name in ("i0", "i1"):
        return [values["x"].nan_to_num(0.0, 9.0, -9.0)]  # the CPU's of infinity is NaN
    if name.endswith("_to_int") or name == "to_dtype":
        return [values["x"].nan_to_num(0.0, 1.0, -1.0)]
    return [values[one] for one in read]


TRIED = sorted(EAGER.keys() & {*NAMES})


@pytest.mark.parametrize("first", range(0, len(TRIED), 8))
def test_F15_an_expression_computes_what_eager_does(device, values, first):
    """Eight of them in a graph, whose kernels are as many as there are sizes of elements."""
    names = TRIED[first : first + 8]
    arguments = [arguments_of(name, values) for name in names]
    wanted = [EAGER[name][1](*given) for name, given in zip(names, arguments, strict=True)]

    def function(arguments):
        return [expression(*one) for one in zip(arguments, names, (one.dtype for one in wanted), strict=True)]

    found = torch.compile(function, fullgraph=True)([[one.to(device) for one in given] for given in arguments])
    for name, got, expected in zip(names, found, wanted, strict=True):
        assert got.dtype == expected.dtype, name
        wide = (2e-5, 1e-6) if expected.dtype.is_floating_point else (0, 0)
        near = torch.isclose(got.cpu(), expected, *wide, equal_nan=True)
        assert near.all(), (name, *(x[~near] for x in arguments[names.index(name)]), got.cpu()[~near], expected[~near])


# uint32 is left out: what the CPU makes of such a float depends on its position.
@pytest.mark.parametrize("source", [torch.float32, torch.float64], ids=str)
def test_F15_a_float_beyond_an_integers_range_is_converted_as_by_eager(device, source):
    ends = [float("inf"), float("nan"), 3e9 + 5, 5e9 + 7, 2.0**31, 2.0**40 + 9, 2.0**63, 2.0**64, 1e19, 1e30, 70000.7]
    x = torch.tensor([*ends, *(-one for one in ends), 300.5, -1.5], dtype=source)
    targets = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.uint64, torch.bool]
    found = torch.compile(lambda x: [(x * 1).to(dtype) for dtype in targets])(x.to(device))
    for got, dtype in zip(found, targets, strict=True):
        wanted = x.to(dtype)
        assert torch.equal(got.cpu(), wanted), dtype
        assert torch.equal(x.to(device).to(dtype).cpu(), wanted), dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_F15_a_large_exponent_is_rounded_as_by_eager(device, dtype, dynamic):
    """Of float64, 2^24 + 1 is odd; of float32 it is 2^24."""
    x = torch.tensor([-1.0, 1.0, -2.0, -0.0], dtype=dtype, device=device)
    run = torch.compile(lambda x, n: (x**n, x**-n, (-1.0) ** (x.abs() * n)), dynamic=dynamic)
    for n in (2**24 + 1, 2**24 + 3):
        wanted = x**n, x**-n, (-1.0) ** (x.abs() * n)
        for one, other in zip(run(x, n), wanted, strict=True):
            assert torch.equal(one.cpu(), other.cpu())
            assert torch.equal(one.signbit().cpu(), other.signbit().cpu())


# Equal in a kernel's text, but of two dtypes.
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32], ids=str)
def test_a_bool_and_a_byte_are_two_constants(device, dtype):
    def function(x):
        never = torch.isnan(x.to(torch.uint8)) | torch.isinf(x.to(torch.uint8))
        return torch.nansum(x), torch.nansum(x, 1), torch.where(never, 0, x), ~torch.where(never, 1, x.to(torch.uint8))

    x = torch.arange(6).view(2, 3).to(dtype)
    for got, wanted in zip(torch.compile(function)(x.to(device)), function(x), strict=True):
        assert torch.equal(got.cpu(), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_of_two_that_alone_leaves_the_range(device, dtype):
    info = torch.finfo(dtype)
    x = torch.tensor([0.0, -0.0, info.tiny, info.max, 1.5, float("inf"), float("nan"), 0.75], dtype=dtype)
    n = torch.tensor([3000, 200, 250, -250, -3, -3000, 1, 128])
    got = torch.compile(torch.ldexp)(x.to(device), n.to(device)).cpu()
    assert torch.equal(got.signbit(), torch.ldexp(x, n).signbit())
    torch.testing.assert_close(got, torch.ldexp(x, n), rtol=0, atol=0, equal_nan=True)


def test_the_smallest_integer_by_minus_one_wraps(device):
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        x = torch.full((9,), torch.iinfo(dtype).min, dtype=dtype, device=device)
        got = torch.compile(lambda x, y: torch.div(x, y, rounding_mode="trunc"))(x, torch.full_like(x, -1))
        assert torch.equal(got, x)


def test_a_large_erfcx(device):
    """Torch's expression for backends is infinite from 10 on, and NaN."""
    x = torch.tensor([-2.0, 0.0, 5.0, 10.0, 100.0, float("inf")])
    got = torch.compile(special.erfcx)(x.to(device)).cpu()
    torch.testing.assert_close(got, special.erfcx(x))


@pytest.mark.parametrize("reduce", [lambda x: x.any(), lambda x: x.all(1), lambda x: x.any(0, keepdim=True) * 3])
def test_any_of_bytes_are_bytes(device, reduce):
    """Torch's lowering makes them bool, on the CPU as well."""
    x = torch.tensor([[0, 2, 0], [1, 1, 0]], dtype=torch.uint8)
    got = torch.compile(reduce)(x.to(device))
    assert got.dtype == torch.uint8
    assert torch.equal(got.cpu(), reduce(x))


def test_a_mantissa_and_an_exponent(device, values):
    x = values["x"][values["x"].isfinite()]
    got = torch.compile(torch.frexp)(x.to(device))
    for one, wanted in zip(got, torch.frexp(x), strict=True):
        assert torch.equal(one.cpu(), wanted)


def test_each_generated_operator_is_tried():
    generated = {name for name in NAMES if name in vars(DialectOps) or name in vars(GroupKernel)} | OF_C
    assert generated - NEVER_ASKED.keys() - set(lacking()) == (EAGER.keys() | AROUND) & {*NAMES}
