"""drivers/spirv, the compiler of the dialect to SPIR-V: what it makes of C, and what it refuses, with the line; what its
prelude composes, against the C library. tests/portable/test_compilers.py has the kernel library."""

# ruff: noqa: E501, texts of kernels

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long_after_first, pytest.mark.xdist_group("spirv")]  # the compiler is built, once

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
DEVICES = ["vulkan", "vulkan-exact", "vulkan-zero", "vulkan-words", "kernel"]
HEAD = "#define BP_GROUP 64\n#define BP_PER_ITEM 4\n#define BP_HAS_F64 0\n#define BP_VECTOR_BYTES 16\n"
KERNEL = """
typedef struct {{ i64 n; f32 alpha; i32 unused; }} P;
{before}
BP_KERNEL(k, 2, P, BP_GLOBAL f32* BP_RESTRICT out, BP_GLOBAL const f32* BP_RESTRICT x) {{
  const i64 i = (i64)BP_GROUP_ID(0) * BP_GROUP + BP_ITEM;
  {body}
}}
"""

# What a body may consist of.
BODIES = {
    "values": ("", "if (i < bp_arg.n) out[i] = bp_arg.alpha * x[i] / 3.0f;"),
    "early return": ("", "if (i >= bp_arg.n) return;\n out[i] = 1.0f;"),
    "all paths return": ("BP_FN f32 f(f32 a) { if (a > 0.0f) { return a; } else { return -a; } }", "out[i] = f(x[i]);"),
    "break and continue": (
        "",
        "f32 s = 0.0f; for (i32 j = 0; j < 9; ++j) { if (j == 3) continue; if (x[j] < 0.0f) break; s += x[j]; } out[i] = s;",
    ),
    "nested loops": (
        "",
        """f32 s = 0.0f; i32 j = 0;
  while (j < 4) { do { s += x[j]; if (s > 9.0f) break; } while (s < 5.0f); ++j; if (j == 3) continue; s *= 2.0f; }
  for (;;) { s += 1.0f; if (s > 100.0f) break; } out[i] = s;""",
    ),
    "endless loop": ("", "for (;;) { if (x[i] > 0.0f) return; out[i] += 1.0f; }"),
    "never run": ("", "while (0) { out[i] = 1.0f; } do { out[i] = 2.0f; } while (0);"),
    "switch": (
        "",
        """f32 s = 0.0f; for (i32 j = 0; j < 9; ++j) { switch (j) { case 0: case 1: s = 1.0f; break; case 2: s += 2.0f;
  case 3: s += 3.0f; break; case 7: continue; default: s -= 1.0f; } s *= 2.0f; } out[i] = s;""",
    ),
    "switch that returns": ("", "switch (i) { case 0: out[0] = 1.0f; return; default: return; }"),
    "switch by i64": ("", "switch (i + 0) { case 5000000000: out[0] = 1.0f; break; case -1: out[1] = 2.0f; }"),
    "short circuits": (
        "",
        "if (i < bp_arg.n && (x[i] > 0.0f || x[i + 1] > 0.0f)) out[i] = i > 2 && x[i - 2] != 0.0f ? x[i] : 0.0f;",
    ),
    "structs": (
        "typedef struct { f32 re, im; } Z; typedef struct { Z z[2]; u8 tag; } Two;"
        "BP_FN Z twice(Z a) { a.re *= 2.0f; Z b = {a.re, 1.0f}; return b; }",
        "Two t; t.z[0].re = x[i]; t.z[1] = twice(t.z[0]); t.tag = (u8)i; const Z u = t.z[i & 1]; out[i] = u.im + twice(u).re + t.tag;",
    ),
    "structs in memory": (
        "typedef struct { f32 re, im; } Z;",
        "BP_LOCAL_ARRAY(Z, s, 64); BP_GLOBAL const Z* z = (BP_GLOBAL const Z*)x; s[BP_ITEM] = z[i]; BP_BARRIER();"
        " const Z v = s[63 - BP_ITEM]; out[i] = v.re + s[0].im; ((BP_GLOBAL Z*)out)[i] = v;",
    ),
    "small integers": (
        "BP_FN u8 f(u8 a, i16 b) { a += 200; a <<= 1; b--; return (u8)(a ^ (u8)b); }",
        "BP_GLOBAL i8* p = (BP_GLOBAL i8*)out; BP_GLOBAL u16* q = (BP_GLOBAL u16*)out; p[i] = (i8)f((u8)i, q[i]); ++p[i + 1]; q[i] >>= 2;",
    ),
    "addresses": (
        "",
        "BP_GLOBAL u32* w = (BP_GLOBAL u32*)((u64)&out[i] & ~(u64)3); *w = (u32)((u64)w >> 32); w -= 2; out[w - (BP_GLOBAL u32*)out] = 0.0f;",
    ),
    "null": ("", "BP_GLOBAL const f32* p = 0; p = i > 3 ? x : p; if (p) out[i] = p[i]; if (p == 0) out[i] = 1.0f;"),
    "private arrays": (
        "",
        "f32 a[3][4] = {{1.0f, 2.0f}, {3.0f}}; a[i & 1][i & 3] += x[i]; i32 b[] = {1, 2, 3}; out[i] = a[2][b[i & 1]];",
    ),
    "tables": (
        "static const i32 table[] = {1, -2, 3};\nstatic const f32 half_ = 0.5f;",
        "out[i] = (f32)table[i & 1] * half_;",
    ),
    "local arrays": (
        "",
        "BP_LOCAL_ARRAY(f32, s, BP_GROUP * 2);\n s[BP_ITEM] = x[i]; BP_BARRIER(); out[i] = s[BP_ITEM ^ 1];",
    ),
    "pointers to local arrays": (
        "BP_FN f32 sum(BP_LOCAL const f32* p, i32 n) { f32 s = 0.0f; for (; n > 0; --n, ++p) s += *p; return s; }",
        "BP_LOCAL_ARRAY(f32, a, 64); BP_LOCAL_ARRAY(f32, b, 64); a[BP_ITEM] = b[BP_ITEM] = x[i]; BP_BARRIER();"
        " BP_LOCAL const f32* q = a + 1; out[i] = sum(q, 3) + sum(b, 4) + (f32)(q - a);",
    ),
    "local arrays of several types": (
        "",
        "BP_LOCAL_ARRAY(u64, s, 64); BP_LOCAL f32* f = (BP_LOCAL f32*)s; BP_LOCAL u8* b = (BP_LOCAL u8*)s; f[BP_ITEM] = x[i]; BP_BARRIER();"
        " b[BP_ITEM] = (u8)i; BP_BARRIER(); out[i] = f[0] + (f32)b[3] + (f32)s[1];",
    ),
    "atomics": (
        "",
        "BP_ATOMIC_ADD_I32((BP_GLOBAL i32*)out, 1); BP_ATOMIC_ADD_F32(out + 1, x[i]);"
        " out[2] = (f32)BP_ATOMIC_CAS_32((BP_GLOBAL u32*)out + 3, 1u, 2u);",
    ),
    "words": (
        "",
        "out[i] = bp_fma(x[i], bp_sqrt(x[0]), bp_rint(x[1])) + bp_copysign(bp_floor(x[2]), bp_trunc(x[3])) + bp_fabs(bp_ceil(x[4]));",
    ),
    "remainders": ("", "out[i] = (f32)((i32)i % -3 + (i32)(i % 7) + (i32)((u32)i % 5u)) + (f32)(i / -2);"),
    "commas and nested choices": (
        "",
        "i32 j = 1, k = 2; out[i] = (j++, --k, i > 1 ? i > 2 ? 1.0f : x[1] : x[2]) + (f32)(j += k <<= 2);",
    ),
    "large parameters": (
        "typedef struct { i64 n[40]; f32 f[2]; } Many;\n#define P Many",
        "out[bp_arg.n[i & 3]] = bp_arg.f[i & 1];",
    ),
    "C's own words": (
        "",
        "unsigned int a = 3u; long b = -1; unsigned char c = 255; signed char d = (signed char)c; out[i] = (f32)(a + b + d);",
    ),
}

# a text that is refused -> the line within it, and a part of the message
REFUSED = {
    "goto": ("goto end;", 1, "goto: the dialect has none"),
    "label": ("end: out[0] = 1.0f;", 1, "the label end"),
    "undeclared": ("\n\n out[0] = y;", 3, "'y' is not declared"),
    "undeclared function": ("\n out[0] = expf(1.0f);", 2, "the function expf is not declared"),
    "member": ("out[0] = bp_arg.beta;", 1, "P has no member beta"),
    "const": ("\n x[0] = 1.0f;", 2, "const"),
    "private pointer": ("f32 a[2]; f32* p = a;", 1, "a pointer without BP_GLOBAL or BP_LOCAL"),
    "private address": ("f32 a = 1.0f; out[0] = *&a;", 1, "the address of a variable of one item"),
    "deep local array": ("if (i) { BP_LOCAL_ARRAY(f32, a, 4); }", 1, "a local array that is not at the top"),
    "arguments": ("out[0] = bp_fma(1.0f, 2.0f);", 1, "bp_fma takes 3 arguments, not 2"),
    "parenthesis": ("out[0] = (1.0f;", 1, "';' where ')' belongs"),
    "double": ("out[0] = 1.0f; f64 d = 1.0;", 1, "float64"),
    "break": ("break;", 1, "break outside of a loop"),
    "two cases": ("switch (i) { case 1: ; case 1: ; }", 1, "two equal cases"),
    "mixed pointers": ("BP_GLOBAL i32* p = out;", 1, "a BP_GLOBAL f32* where a BP_GLOBAL i32* belongs"),
    "macro": ("\n#define F(a, b) a\n out[0] = F(1.0f);", 3, "the macro F takes 2 arguments, not 1"),
    "include": ('\n#include "math.h"\n', 2, "there are no files to include"),
    "error": ("\n#if BP_GROUP == 64\n#error not of 64\n#endif\n", 3, "#error: not of 64"),
    "open if": ("\n#if 1\n", 2, "an #if without #endif"),
    "#line": ('\n#line 40 "unit"\n out[0] = y;', 40, "unit:40: error"),
    "assembler": ("asm(1);", 1, "'asm': not a word of the dialect"),
    "a base that moves": (
        "BP_LOCAL_ARRAY(f32, a, 4); BP_LOCAL_ARRAY(f32, b, 4);\n BP_LOCAL f32* p = a; p = b; out[0] = *p;",
        2,
        "points into another array",
    ),
    "too much local memory": ("BP_LOCAL_ARRAY(f32, a, 20000); a[0] = x[0];", -1, "80000 bytes, and the device 65536"),
    "union": ("union U { i32 a; } u;", 1, "union: the dialect has none"),
}


@pytest.fixture(scope="session")
def tool(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("spirv") / "spirv_tool"
    unit = out.with_suffix(".cpp")
    sources = [*sorted((ROOT / "drivers" / "spirv").glob("*.cpp")), HERE / "spirv_tool.cpp"]
    unit.write_text("".join(f'#include "{path}"\n' for path in sources))
    compiler = os.environ.get("CXX") or "g++"
    subprocess.run([compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", unit, "-o", out], check=True)
    return out


def run(*words) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def unit_of(tool: Path, body: str, before: str = "") -> str:
    return HEAD + run(tool, "words") + "#line 1\n" + KERNEL.format(before=before, body=body)


def compiled(tool: Path, device: str, folder: Path, units: dict[str, str]) -> dict[str, str]:
    """What becomes of each."""
    files = []
    for name, text in units.items():
        files.append(folder / f"{name.replace(' ', '_')}.c")
        files[-1].write_text(text)
    lines = run(tool, "compile", device, folder, *files).splitlines()
    return dict(zip(units, lines, strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_what_the_dialect_has_compiles(tool, device, tmp_path):
    units = {name: unit_of(tool, body, before) for name, (before, body) in BODIES.items()}
    assert {
        name: line for name, line in compiled(tool, device, tmp_path, units).items() if not line.startswith("ok ")
    } == {}


@pytest.mark.system
@pytest.mark.parametrize("device", DEVICES)
def test_it_is_valid_spirv(tool, device, tmp_path):
    compiled(tool, device, tmp_path, {name: unit_of(tool, body, before) for name, (before, body) in BODIES.items()})
    assert invalid(tmp_path, device) == {}
    broken = tmp_path / "values.spv"
    broken.write_bytes(broken.read_bytes()[:-8])
    assert set(invalid(tmp_path, device)) == {"values"}


def invalid(folder: Path, device: str) -> dict[str, str]:
    """Name -> what spirv-val says, of what it refuses."""
    validator = shutil.which("spirv-val")
    assert validator
    target = "spv1.2" if device == "kernel" else "vulkan1.2"
    out = {}
    for path in sorted(folder.glob("*.spv")):
        done = subprocess.run([validator, "--target-env", target, path], capture_output=True, text=True, check=False)
        if done.returncode:
            out[path.stem] = done.stdout + done.stderr
    return out


def test_what_is_wrong_is_refused_with_its_line(tool, tmp_path):
    units = {name: unit_of(tool, body) for name, (body, _, _) in REFUSED.items()}
    lines = compiled(tool, "vulkan", tmp_path, units) | compiled(
        tool, "vulkan-least", tmp_path, {"double": units["double"]}
    )
    first = KERNEL.split("{body}")[0].count("\n") + 1
    for name, (_, line, message) in REFUSED.items():
        assert message in lines[name], (name, lines[name])
        number = int(lines[name].split(": error: ")[0].split(":")[-1])
        assert line < 0 or number == (line if name == "#line" else first + line - 1), (name, lines[name])


def test_layout_of_parameters(tool, tmp_path):
    units = {name: unit_of(tool, BODIES[name][1], BODIES[name][0]) for name in ("values", "large parameters")}
    small, large = compiled(tool, "vulkan", tmp_path, units).values()
    assert small.endswith("| k group=64 local=0 push=32 zero=-1 placement=0 out:out@0+8 in:x@8+8 value:bp_arg@16+16")
    assert large.endswith("| k group=64 local=0 push=8 zero=-1 placement=1 out:out@0+8 in:x@8+8 value:bp_arg@16+328")
    small, large = compiled(tool, "vulkan-zero", tmp_path, units).values()
    assert " push=36 zero=32 placement=0 " in small
    assert " push=12 zero=8 placement=1 " in large
    (line,) = compiled(tool, "kernel", tmp_path, {"values": units["values"]}).values()
    assert " push=0 zero=-1 placement=2 " in line


def test_composed_words_against_the_c_library(tool, tmp_path):
    words = tmp_path / "words.inc"
    words.write_text(run(tool, "words"))
    out = tmp_path / "words_test"
    flags = ["-std=gnu11", "-O1", "-ffp-contract=off", "-w", f'-DWORDS="{words}"']
    subprocess.run([os.environ.get("CC") or "gcc", *flags, HERE / "spirv_words_test.c", "-o", out, "-lm"], check=True)
    assert run(out) == "0 wrong\n"


def test_the_page_of_targets(tmp_path):
    page = (ROOT / "docs" / "targets.md").read_text()
    (shown,) = re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)
    source = tmp_path / "shown.cpp"
    source.write_text(shown)
    compiler = os.environ.get("CXX") or "g++"
    folders = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'drivers'}"]
    subprocess.run(
        [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *folders, source], check=True
    )
    facts = set(
        re.findall(r"^  bool (\w+) = false;", (ROOT / "drivers" / "spirv" / "spirv.h").read_text(), re.MULTILINE)
    )
    table = page.split("| fact |")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z_0-9]+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:])))
    assert facts - named == {"fast_fma", "float64_controls", "hide_zero", "hide_sign", "fast_math"}
    assert named - facts == {"subgroup_size"}
