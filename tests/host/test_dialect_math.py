"""The dialect's functions of f32 (math.bpc and special.bpc of backend/kernels/portable/dialect), with the simulated
device's prelude and this machine's C compiler: each against the same function of doubles, to the ulp that its comment
states, with products contracted and not; halves and 8-bit floats, every one of them, against torch's conversions."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
DIALECT = ROOT / "backend" / "kernels" / "portable" / "dialect"
COMPILER = os.environ.get("CC") or shutil.which("cc") or "gcc"
# As drivers/sim compiles for the least and for the newest processor; and with every fma that this machine has.
FLAGS = "-std=gnu11 -O3 -fPIC -shared -fno-math-errno -fno-trapping-math -fwrapv -Wall -Wextra".split()
DIALECT_TEXT = "".join((DIALECT / name).read_text() for name in ("math.bpc", "special.bpc"))
BUILDS = {
    "separate": ["-ffp-contract=off"],
    "newest": ["-ffp-contract=off", "-march=native"],
    "contracted": ["-ffp-contract=fast", "-march=native"],
}


def of_torch(function):
    return lambda *arguments: function(*map(torch.from_numpy, arguments)).numpy()


def remainder(x, y):
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def sin_pi(x):
    """Without the rounding of pi x."""
    whole = np.rint(x)
    return np.sin(np.pi * (x - whole)) * np.where(whole % 2, -1.0, 1.0)


def sinc(x):
    return np.where(x == 0, 1.0, sin_pi(x) / (np.pi * x))


def normal_cdf(x):
    return of_torch(torch.erfc)(-x / np.sqrt(2)) / 2  # torch.special.ndtr cancels on the left


def gelu_slope(x):
    """At infinity NaN, as torch has it."""
    return normal_cdf(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def trigamma(x):
    right = torch.polygamma(1, torch.from_numpy(np.where(x < 0, 1 - x, x))).numpy()
    return np.where(x < 0, (np.pi / sin_pi(x)) ** 2 - right, right)


def bessel(function, odd=False):
    """At infinity, where torch has NaN, infinite; an odd one is -0 at -0."""

    def of(x):
        result = np.where(np.isinf(x), np.inf, of_torch(function)(np.abs(x)))
        return np.copysign(result, x) if odd else result

    return of


UNARY = {
    **{name: getattr(np, name) for name in "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh".split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
    **{
        name: of_torch(getattr(torch.special, name))
        for name in "erf erfc entr digamma erfinv ndtri log_ndtr i0e".split()
    },
    "sigmoid": of_torch(torch.sigmoid),
    "lgamma": of_torch(torch.lgamma),
    "normal_cdf": normal_cdf,
    "gelu_slope": gelu_slope,
    "sinc": sinc,
    "trigamma": trigamma,
    "i0": bessel(torch.special.i0),
    "i1": bessel(torch.special.i1, odd=True),
    "i1e": lambda x: np.copysign(of_torch(torch.special.i1e)(x), x),
}
BINARY = {
    "atan2": np.arctan2,
    "pow": np.power,
    "fmod": np.fmod,
    "remainder": remainder,
    "hypot": np.hypot,
    "xlogy": of_torch(torch.xlogy),
    "xlog1py": of_torch(torch.special.xlog1py),
}
EXACT = {"fmod": (0.0, 0.0, False), "remainder": (0.5, 0.0, False)}  # stated in words; 0.5 is rounded to nearest
NARROW = {
    "f16": (np.uint16, torch.float16),
    "bf16": (np.uint16, torch.bfloat16),
    "f8e4m3": (np.uint8, torch.float8_e4m3fn),
    "f8e5m2": (np.uint8, torch.float8_e5m2),
    "f8e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
    "f8e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "f8e8m0": (np.uint8, torch.float8_e8m0fnu),
}


def prelude():
    """The simulated device's, out of the C++ text that holds it."""
    return re.search(r'R"prelude\((.*?)\)prelude"', (ROOT / "drivers/sim/prelude.h").read_text(), re.DOTALL)[1]


def loops():
    """A function of arrays for each of the dialect's, a line each."""
    for name in UNARY:
        yield f"void t_{name}(f32* BP_RESTRICT o, const f32* BP_RESTRICT x, i64 n)", f"o[i] = bp_{name}(x[i])"
    for name in (*BINARY, "floor_quotient_f32"):
        arguments = "f32* BP_RESTRICT o, const f32* BP_RESTRICT x, const f32* BP_RESTRICT y, i64 n"
        yield f"void t_{name}({arguments})", f"o[i] = bp_{name}(x[i], y[i])"
        if name.startswith("xlog"):  # its loop has the logarithm of a number in it
            continue
        arguments = "f32* BP_RESTRICT o, const f32* BP_RESTRICT x, f32 number, i64 n"
        yield f"void by_number_{name}({arguments})", f"o[i] = bp_{name}(x[i], number)"
        yield f"void of_number_{name}({arguments})", f"o[i] = bp_{name}(number, x[i])"
    for name, (bits, _) in NARROW.items():
        t = {np.uint16: "u16", np.uint8: "u8"}[bits]
        yield f"void to_{name}({t}* BP_RESTRICT o, const f32* BP_RESTRICT x, i64 n)", f"o[i] = bp_f32_to_{name}(x[i])"
        yield f"void from_{name}(f32* BP_RESTRICT o, const {t}* BP_RESTRICT x, i64 n)", f"o[i] = bp_{name}_to_f32(x[i])"


def source():
    # torch's own conversion says what it does with too large a number; 2.13 changed it
    overflow = torch.tensor(1000.0).to(torch.float8_e4m3fn).view(torch.uint8).item()
    head = f"#define BP_GROUP 1\n#define BP_F8E4M3_OVERFLOW {overflow:#x}u\n"
    visible = '__attribute__((visibility("default")))'
    lines = [f"{visible} {head} {{ for (i64 i = 0; i < n; ++i) {body}; }}" for head, body in loops()]
    rows = "{ bp_f32_row_to_bf16(o, x, (i32)n); }", "{ bp_bf16_row_to_f32(o, x, (i32)n); }"
    lines += [f"{visible} void row_to_bf16(u16* o, const f32* x, i64 n) {rows[0]}"]
    lines += [f"{visible} void row_from_bf16(f32* o, const u16* x, i64 n) {rows[1]}"]
    return "\n".join([head + prelude(), DIALECT_TEXT, *lines, ""])


def compile_to(folder, flags, *more):
    (folder / "math.c").write_text(source())
    command = [COMPILER, *FLAGS, *flags, *more, folder / "math.c", "-o", folder / "math.so", "-lm"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


# The simulated device compiles as "newest".
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("separate", "contracted")]


@pytest.fixture(scope="module", params=["newest", *LONG])
def library(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    messages = compile_to(folder, BUILDS[request.param])
    assert not messages, messages
    return ctypes.CDLL(str(folder / "math.so"))


def call(function, dtype, *arguments):
    out = np.empty(arguments[0].size, dtype)
    function(*(ctypes.c_void_p(array.ctypes.data) for array in (out, *arguments)), ctypes.c_int64(out.size))
    return out


RANDOM = np.random.default_rng(0)
SPECIAL = [0.0, 1.0, 0.5, 2.0, 3.0, 1e-45, 1.1754944e-38, 3.4028235e38, np.inf, np.nan, 88.72284, 0.99999994, 1.0000001]
SPECIAL = np.array(SPECIAL, np.float32)
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


def any_bits(count):
    return RANDOM.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)


def between(low, high, count=40000):
    return RANDOM.uniform(low, high, count).astype(np.float32)


ARGUMENTS = np.concatenate(
    [
        SPECIAL,
        any_bits(150000),
        *(between(-size, size) for size in (1, 10, 104)),
        1 + between(-1e-3, 1e-3),
        between(0, 1) ** 8,
        1 - between(0, 1) ** 6,
        (np.arange(1, 40000) * (np.pi / 2)).astype(np.float32),  # where sine and cosine cancel
        np.arange(-160, 160, dtype=np.float32),
    ]
).astype(np.float32)
WIDE = [between(0, 3), between(0.5, 2), between(-10, 10), any_bits(20000)]
POWERS = [between(-100, 100), between(-300, 300), between(-10, 10), between(-40, 40, 20000).round()]
PAIRS = (
    np.concatenate([np.repeat(SPECIAL, SPECIAL.size), any_bits(80000), *WIDE]),
    np.concatenate([np.tile(SPECIAL, SPECIAL.size), any_bits(80000), *POWERS]),
)


def ulps(got, want):
    """How far each is off, in units of the last place of the wanted f32; infinite where only one is NaN."""
    unit = np.ldexp(1.0, np.clip(np.frexp(want)[1] - 24, -149, 104))
    beyond = 2.0**128  # what infinity stands for
    off = np.abs(np.clip(got.astype(np.float64), -beyond, beyond) - np.clip(want, -beyond, beyond)) / unit
    off = np.where(got == want.astype(np.float32), np.where(np.isinf(got), 0, off), off)
    off = np.where(np.isnan(want), 0, off)
    return np.where(np.isnan(got) != np.isnan(want), np.inf, off)


def stated():
    """The accuracy of each function, as its comment has it: the ulp, and what is added to them near zeros; and
    whether twice the square of an argument below -1 is ulp more."""
    found = re.findall(r"/\*((?:(?!\*/).)*)\*/\nBP_FN f32 bp_(\w+)\(", DIALECT_TEXT, re.DOTALL)
    accuracy = r"(\d+) ulp(?:; (\de-\d+) near its zeros)?(; below -1 2 x x ulp more)?"
    numbers = {name: re.search(accuracy, comment) for comment, name in found}
    stated = {name: (float(n[1]), float(n[2] or 0), bool(n[3])) for name, n in numbers.items() if n}
    return stated | EXACT


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_accuracy(library, name):
    arguments = PAIRS if name in BINARY else (ARGUMENTS,)
    got = call(library[f"t_{name}"], np.float32, *arguments)
    most_ulps, near_zeros, squares = stated()[name]
    with np.errstate(all="ignore"):
        want = (BINARY.get(name) or UNARY[name])(*(array.astype(np.float64) for array in arguments))
        off = ulps(got, want)
        off[np.abs(got - want) <= near_zeros] = 0
        if squares:
            off -= np.where(arguments[0] < -1, 2 * arguments[0].astype(np.float64) ** 2, 0)
    most = int(off.argmax())
    of = [float(array[most]) for array in arguments]
    assert off[most] <= most_ulps <= 8, f"bp_{name}{of} = {got[most]}, not {want[most]}: {off[most]:.2f} ulp"
    signs = (want == 0) & (np.signbit(got) != np.signbit(want))
    assert not signs.any(), [float(array[signs][0]) for array in arguments]


@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats_equal_torch(library, name):
    dtype, narrow = NARROW[name]
    every = np.arange(np.iinfo(dtype).max + 1).astype(dtype)
    values = torch.from_numpy(every).view(narrow).float().numpy()
    got = call(library[f"from_{name}"], np.float32, every)
    np.testing.assert_array_equal(got, values)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(values))

    finite = np.sort(values[np.isfinite(values)]).astype(np.float64)
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)  # where halves go to even
    x = np.concatenate([values[np.isfinite(values)], middles, any_bits(300000)])
    x = x[~np.isnan(x)]
    x = np.concatenate([SPECIAL, x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    wanted = torch.from_numpy(x).to(narrow)
    got = call(library[f"to_{name}"], dtype, x)
    nan = np.isnan(x)
    assert torch.from_numpy(got[nan]).view(narrow).float().isnan().all()
    wrong = (got != wanted.view(torch.from_numpy(every).dtype).numpy()) & ~nan
    assert not wrong.any(), f"{x[wrong][0]!r} became {got[wrong][0]:#x}"
    if name == "bf16":
        assert (got[nan] == 0x7FC0).all()
        np.testing.assert_array_equal(call(library["row_to_bf16"], dtype, x), got)
        np.testing.assert_array_equal(call(library["row_from_bf16"], np.float32, every), values)


def test_gcc_makes_vector_instructions_of_every_function(tmp_path):
    if not re.search(r"^#define __GNUC__", macros := compiler_macros(), re.MULTILINE) or "__clang__" in macros:
        pytest.skip(f"{COMPILER} is not gcc, whose report this reads")
    if "__x86_64__" not in macros:
        pytest.skip("the level of vector instructions is one of x86-64")
    report = compile_to(tmp_path, ["-ffp-contract=off", "-march=x86-64-v3"], "-fopt-info-vec-optimized")
    vectors = {int(line) for line in re.findall(r"math\.c:(\d+):\d+: optimized: loop vectorized", report)}
    lines = (tmp_path / "math.c").read_text().splitlines()
    scalar = [line for number, line in enumerate(lines, 1) if "for (i64 i = 0; i < n" in line and number not in vectors]
    assert not scalar, "\n".join(scalar)


def compiler_macros():
    command = [COMPILER, "-dM", "-E", "-x", "c", os.devnull]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
