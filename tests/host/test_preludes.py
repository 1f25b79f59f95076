"""The preludes of GPUs compile with the core's part and kernels that use every word of docs/dialect.md,
where this machine has the compiler. Of these nothing is run; the simulated device's own words are."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRELUDES = {
    "opencl.cl": ROOT / "drivers/opencl/prelude.h",
    "cuda.cu": ROOT / "drivers/cuda/prelude.h",
    "sim.c": ROOT / "drivers/sim/prelude.h",
}
DIALECT = ROOT / "backend" / "kernels" / "portable" / "dialect"
COMPILERS = {
    "opencl.cl": "clang -x cl -cl-std=CL1.2 -Xclang -finclude-default-header -fsyntax-only -Werror".split(),
    "cuda.cu": "nvcc -ptx -o /dev/null -Werror all-warnings -diag-suppress 177".split(),  # 177: a function is not used
}
FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "sqrt fabs floor ceil trunc rint sigmoid "
    "normal_cdf gelu_slope entr sinc lgamma digamma trigamma erfinv ndtri log_ndtr i0 i0e i1 i1e"
).split()
FUNCTIONS64 = (
    "exp64 exp2_64 expm1_64 log64 log2_64 log10_64 log1p64 sin64 cos64 tan64 asin64 acos64 atan64 sinh64 cosh64 tanh64 "
    "asinh64 acosh64 atanh64 erf64 erfc64 lgamma64 sqrt64 fabs64 floor64 ceil64 trunc64 rint64"
).split()
WORDS = re.compile(r"\b(?:BP_[A-Z0-9_]+|bp_[a-z0-9_]+)\b")
OF_THE_DRIVER = {"BP_COMPILE_DEBUG", "BP_DEBUG"}
OF_THE_CORE = {"BP_FAST_FMA", "BP_NATIVE_F16", "BP_NATIVE_BF16", "BP_NATIVE_MATH"}  # it asks for them

# Every word that a prelude has or may have, and what the core adds.
KERNELS = """
typedef struct { i64 n; u64 a; i32 b; u32 c; f32 alpha; i32 unused; } Params;
BP_FN f32 twice(BP_GLOBAL const f32* p, BP_LOCAL f32* q, i32 i) { return p[i] + q[i]; }
BP_VECTOR(f32, Vector);
BP_VECTOR(u32, Pairs);
BP_KERNEL(words, 4, Params, BP_GLOBAL f32* BP_RESTRICT out, BP_GLOBAL const f32* BP_RESTRICT in,
          BP_GLOBAL u16* BP_RESTRICT halves, BP_GLOBAL u8* BP_RESTRICT bytes) {
  BP_LOCAL_ARRAY(f32, shared, BP_GROUP);
  const i64 first = (i64)(BP_GROUP_ID(0) + BP_GROUP_ID(1) * BP_GROUPS(0) + BP_GROUP_ID(2)) * BP_TILE;
  BP_ASSERT(bp_arg.n < 1000);
  shared[BP_ITEM] = in[BP_ITEM];
  BP_BARRIER();
  BP_UNROLL
  for (i32 k = 0; k < 4; ++k) shared[BP_ITEM] += (f32)k;
  BP_IVDEP
  for (i32 k = 0; k < 4; ++k) out[k] = (f32)k;
  const Vector twofold = BP_VECTOR_ZERO(Vector) + *(BP_LOCAL const Vector*)shared * 2.0f;
  *(BP_LOCAL Vector*)shared = BP_VECTOR_FMA(0.5f, twofold, twofold);
#ifdef BP_VECTOR_DOT_BF16
  *(BP_LOCAL Vector*)shared = BP_VECTOR_DOT_BF16(bp_arg.c, *(BP_LOCAL const Pairs*)shared, twofold);
#endif
  BP_TRANSPOSE(shared + BP_GROUP / 2, 2, shared, 1, 2, BP_GROUP / 4);
  const i64 zero = BP_OPAQUE_ZERO;
  BP_LANES(j) {
    const f32 x = in[(first + BP_AT(j)) ^ zero] + BP_INFINITY * bp_arg.alpha + (f32)(BP_GROUPS(1) + BP_GROUPS(2));
    f32 y = twice(in, shared, j) + bp_as_f32(bp_as_u32(x) ^ bp_arg.c) + (bp_arg.n == 0 ? BP_NAN : 0.0f);
    @FUNCTIONS@
    y += bp_atan2(x, y) + bp_pow(x, y) + bp_fma(x, y, x) + bp_copysign(x, y);
    y += bp_f16_to_f32(halves[0]) + bp_bf16_to_f32(halves[1]);
    y += bp_f8e4m3_to_f32(bytes[0]) + bp_f8e5m2_to_f32(bytes[1]) + bp_f8e8m0_to_f32(bytes[4]);
    y += bp_f8e4m3fnuz_to_f32(bytes[2]) + bp_f8e5m2fnuz_to_f32(bytes[3]);
    halves[2] = bp_f32_to_f16(y);
    halves[3] = bp_f32_to_bf16(y);
    bytes[2] = bp_f32_to_f8e4m3(y);
    bytes[3] = bp_f32_to_f8e5m2(y);
    bytes[4] = bp_f32_to_f8e4m3fnuz(y);
    bytes[5] = bp_f32_to_f8e5m2fnuz(y);
    bytes[6] = bp_f32_to_f8e8m0(y);
    out[first + BP_AT(j)] = y + bp_hypot(x, y) + bp_fmod(x, y) + bp_remainder(x, y) + bp_xlogy(x, y) + bp_xlog1py(x, y);
  }
#ifdef BP_NATIVE_F16_ROWS
  bp_f16_row_to_f32(shared, halves, BP_GROUP);
  bp_f32_row_to_f16(halves, shared, BP_GROUP);
#endif
  BP_TAIL(j, first, bp_arg.n) bp_store_f16(halves, j, bp_load_bf16(halves, j));
}
BP_KERNEL(atomics, 4, Params, BP_GLOBAL i32* BP_RESTRICT a, BP_GLOBAL f32* BP_RESTRICT b,
          BP_GLOBAL u32* BP_RESTRICT c, BP_GLOBAL u64* BP_RESTRICT d) {
  BP_ATOMIC_ADD_I32(a, bp_arg.b);
  BP_ATOMIC_ADD_F32(b + BP_ITEM, bp_arg.alpha);
  c[1] = BP_ATOMIC_CAS_32(c, bp_arg.c, 1u);
#ifdef BP_ATOMIC_ADD_I64
  BP_ATOMIC_ADD_I64((BP_GLOBAL i64*)d, bp_arg.n);
#endif
#ifdef BP_ATOMIC_CAS_64
  d[1] = BP_ATOMIC_CAS_64(d, bp_arg.a, (u64)1);
#endif
#ifdef BP_SHUFFLE_XOR
  c[2] = BP_SHUFFLE_XOR(c[3], 1);
#endif
  const i8 i8s = (i8)c[4];
  const i16 i16s = (i16)c[5];
  a[1] = i8s + i16s;
}
#if BP_HAS_F64
BP_KERNEL(doubles, 1, Params, BP_GLOBAL f64* BP_RESTRICT out) {
  f64 d = bp_as_f64(bp_as_u64(out[BP_ITEM]) + 1);
  @FUNCTIONS64@
  d += bp_atan2_64(d, d) + bp_pow64(d, d) + bp_fmod64(d, d) + bp_hypot64(d, d) + bp_fma64(d, d, d);
  out[BP_ITEM] = bp_copysign64(d, out[1]);
}
#endif
"""
KERNELS = KERNELS.replace("@FUNCTIONS@", "".join(f"y += bp_{word}(x); " for word in FUNCTIONS))
KERNELS = KERNELS.replace("@FUNCTIONS64@", "".join(f"d += bp_{word}(d); " for word in FUNCTIONS64))


def words_of_the_prelude():
    """Those that docs/dialect.md lists in its section of that name."""
    text = (ROOT / "docs/dialect.md").read_text()
    section = re.search(r"^## The prelude$(.*?)^## ", text, re.DOTALL | re.MULTILINE)[1]
    return {word for code in re.findall(r"`([^`]+)`", section) for word in WORDS.findall(code)}


def test_kernels_use_every_word_of_the_document():
    listed = words_of_the_prelude() - OF_THE_CORE - OF_THE_DRIVER
    assert len(listed) > 90
    assert listed <= set(WORDS.findall(KERNELS)), listed - set(WORDS.findall(KERNELS))
    core = "".join((DIALECT / name).read_text() for name in ("core.bpc", "math.bpc"))
    assert set(WORDS.findall(core)) >= OF_THE_CORE


def prelude(name):
    """The text of a driver's own header, with those of drivers/engine: what prelude.h makes, and transpose.h."""
    each = "".join(f"#define BP_EACH_{n}(X) {', '.join(f'X({i})' for i in range(n))}\n" for n in range(1, 5))
    headers = [PRELUDES[name]] + ([ROOT / "drivers/engine/transpose.h"] if name != "cuda.cu" else [])
    return each + "".join(re.search(r'R"(\w+)\((.*)\)\1"', one.read_text(), re.DOTALL)[2] for one in headers)


def compile_with(name, folder, kernel, *more):
    group = 1 if "-DONE_ITEM" in more else 64
    definitions = f"#define BP_GROUP {group}\n#define BP_PER_ITEM 4\n#define BP_VECTOR_BYTES 16\n#define BP_HAS_F64 "
    core = [(DIALECT / part).read_text() for part in ("core.bpc", "math.bpc", "special.bpc")]
    head = definitions + ("0" if "-DNO_F64" in more else "1")
    text = "\n".join([head, prelude(name), *core, kernel])
    (folder / name).write_text(text)
    command = [*COMPILERS[name], *more, folder / name]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("more", ["", "-DONE_ITEM", "-DNO_F64", "-DBP_DEBUG", "-DBP_BUFFERS"])
@pytest.mark.parametrize("name", [pytest.param("opencl.cl", marks=pytest.mark.system), "cuda.cu"])
def test_prelude_compiles_every_word(name, more, tmp_path):
    if name == "cuda.cu" and not shutil.which("nvcc"):
        pytest.skip("this machine has no nvcc")
    done = compile_with(name, tmp_path, KERNELS, *more.split())
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = compile_with(name, tmp_path, KERNELS.replace("bp_fma(x, y, x)", "bp_fma_unknown(x, y, x)"), *more.split())
    assert wrong.returncode
    assert "bp_fma_unknown" in wrong.stdout + wrong.stderr


TRANSPOSED = """
#include <stdio.h>
#define TRY(T, rows, step, depth)                                                                    \\
  {                                                                                                  \\
    static T from[rows * 50], to[step * depth], loops[step * depth];                                 \\
    for (int i = 0; i < rows * 50; ++i) from[i] = (T)(i + 1);                                        \\
    BP_TRANSPOSE(to, step, from, 50, rows, depth);                                                   \\
    for (int k = 0; k < depth; ++k)                                                                  \\
      for (int r = 0; r < rows; ++r) loops[k * step + r] = from[r * 50 + k];                         \\
    for (int i = 0; i < step * depth; ++i) wrong += to[i] != loops[i], tried += to[i] != 0;          \\
  }
#define TRY_ROWS(T, rows) TRY(T, rows, rows, 37) TRY(T, rows, 2 * rows, 3)
#define TRY_EACH(T) TRY_ROWS(T, 2) TRY_ROWS(T, 6) TRY_ROWS(T, 8) TRY_ROWS(T, 16) TRY_ROWS(T, 20)
int main(void) {
  int wrong = 0, tried = 0;
  TRY_EACH(f32) TRY_EACH(i32) TRY_EACH(f64) TRY_EACH(i64)
  printf("%d of %d\\n", wrong, tried);
}
"""


@pytest.mark.parametrize("size", [16, 32, 64])
def test_a_transposition_by_vectors_is_the_loops(tmp_path, size):
    begin = f"#define BP_GROUP 1\n#define BP_PER_ITEM 1\n#define BP_VECTOR_BYTES {size}\n#define BP_HAS_F64 1\n"
    (tmp_path / "transposed.c").write_text(begin + prelude("sim.c") + TRANSPOSED)
    command = ["gcc", "-std=gnu11", "-O1", "-w", "-fno-strict-aliasing", tmp_path / "transposed.c"]
    subprocess.run([*map(str, command), "-o", str(tmp_path / "program"), "-lm"], check=True)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert done.stdout == f"0 of {4 * (37 + 3) * (2 + 6 + 8 + 16 + 20)}\n"
