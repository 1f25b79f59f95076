"""The lint of the kernel dialect: each rule, on a text that breaks it and one beside it that does not."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from backplane_tools.cli import main
from backplane_tools.dialect import RULES, lint

ROOT = Path(__file__).resolve().parents[2]
PARAMS = "typedef struct {{ {} }} P;\nBP_KERNEL(k, 1, P, BP_GLOBAL f32* BP_RESTRICT out) {{ out[0] = 1.0f; }}"
KERNEL = "BP_KERNEL(k, 1, P, BP_GLOBAL f32* BP_RESTRICT out) {{ {} }}"

# rule -> texts that break it once, texts that keep it
CASES = {
    "type": (
        ["BP_FN i32 f(int x) { return x; }", "#define AS(x) ((double)(x))"],
        ["BP_FN i32 f(i32 x) { return x; } // int", "/* double\n int */ BP_FN i32 print(i32 x) { return x; }"],
    ),
    "half": (["BP_FN f32 f(half x) { return 0.0f; }"], ["BP_FN f32 f(u16 half_of_x) { return 0.0f; }"]),
    "keyword": (
        ["BP_FN i32 f(i32 local_, i32 x) { i32 global = x; return 0; }"],
        ["BP_FN i32 f(i32 length, i32 step) { return length * step; }"],
    ),
    "function": (
        ["BP_FN f32 clamp(f32 x) { return x; }", "#define select(a, b) a", KERNEL.format("").replace("(k", "(index")],
        ["BP_FN f32 m_clamp(f32 clamp) { return clamp; }", "#define TWO(x) m_exp(x)"],
    ),
    "compiler": (
        [
            KERNEL.format("out[0] = get_global_id(0);"),
            KERNEL.format("const i32 i = threadIdx.x;"),
            "#define X __inline",
        ],
        ["#define X(...) f(__VA_ARGS__)"],
    ),
    "suffix": (
        [
            "BP_FN f32 f(f32 x) { return x * 0.5; }",
            "#ifdef C_IS_f32\n#else\n#endif\n#define X 1e-3",
            "#ifdef C_IS_f32\n#define X 1.0\n#else\n#define X 1.0\n#endif",
            "#if BP_HAS_F64\n#define X 1.0\n#else\n#define X 2.0\n#endif",
        ],
        [
            "BP_FN f32 f(f32 x) { return x * 0.5f + 1e3f + 0x1e3 + 7; }",
            "#ifdef C_IS_f32\n#if A\n#define X 1.0f\n#endif\n#else\n#if A\n#define X 1.0\n#endif\n#endif",
            "#if !BP_HAS_F64\n#define X 1.0f\n#else\n#define X 1.0\n#endif",
            "BP_FN f64 f(f64 x) { return x * 0.5; }",
        ],
    ),
    "maximum": (
        ["BP_FN f32 f(f32 x) { return fmax(x, 0.0f); }"],
        ["BP_FN f32 f(f32 x) { return x > 0.0f ? x : 0.0f; }"],
    ),
    "index": (["BP_FN i32 f(i32 x) { return x + BP_ITEM; }"], [KERNEL.format("out[BP_ITEM] = bp_arg.x;")]),
    "local": (
        [
            "BP_FN f32 f(f32 x) { BP_LOCAL_ARRAY(f32, a, 4); return x; }",
            KERNEL.format("{ BP_LOCAL_ARRAY(f32, a, 4); }"),
        ],
        [KERNEL.format("BP_LOCAL_ARRAY(f32, a, 4); { a[0] = 1.0f; }")],
    ),
    "pointer": (["BP_FN f32 f(const f32* p) { return *p; }"], ["BP_FN f32 f(BP_LOCAL const f32* p) { return *p; }"]),
    "params": (
        [PARAMS.format("i64 n; u8 a[8];"), PARAMS.format("f32* x;")],
        [PARAMS.format("i64 n; i64 s[2 * D];"), PARAMS.format("i64 n; IDX s;")],
    ),
    "size": (
        [PARAMS.format("i32 n;"), PARAMS.format("f32 x[3]; i32 a, b;")],
        [PARAMS.format("f32 x; i64 n; i32 a, b;"), PARAMS.format("i32 a[2];"), PARAMS.format("i32 a[N];")],
    ),
    "pointers": (
        [KERNEL.format("").replace("1,", "2,")],
        [KERNEL.format(""), KERNEL.format("").replace("1,", "COUNT,"), "BP_KERNEL(k, 4, P, OPERANDS) { }"],
    ),
    "recursion": (["BP_FN i32 f(i32 x) { return x ? f(x - 1) : 0; }"], ["BP_FN i32 f(i32 x) { return f_(x - 1); }"]),
    "function-pointer": (
        ["BP_FN i32 f(i32 x) { i32 (*p)(i32) = g; return x; }"],
        ["BP_FN i32 f(i32 x, i32 y) { return (x * y) + g(x); }"],
    ),
    "cast": (
        ["BP_FN f32 f(f32 x) { f32 y[2]; return *(const f32*)y + *(f32*)&x; }"],
        ["BP_FN f32 f(BP_LOCAL f32* x) { return *(BP_LOCAL const f32*)x * (f32)2; }"],
    ),
    "null": (
        [
            "BP_FN i32 f(BP_LOCAL f32* x) { return x == (BP_LOCAL f32*)0; }",
            "BP_FN void f(i32 x) { g((BP_LOCAL const C*)0); }",
        ],
        ["BP_FN i32 f(BP_GLOBAL f32* x) { return x == (BP_GLOBAL f32*)0; }"],
    ),
    "literal": (
        ["BP_FN f32 f(f32 x) { x = (f32){0}; return x; }"],
        ["BP_FN f32 f(f32 x) { if (x) { return x; } f32 y[1] = {0}; return y[0] + BP_VECTOR_ZERO(f32); }"],
    ),
    "goto": (["BP_FN i32 f(i32 x) { goto end; }"], ["BP_FN i32 f(i32 x) { return x; }"]),
}


def broken(text):
    return {problem.rule for problem in lint(text)}


def test_each_rule_has_its_cases():
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_text_that_breaks_the_rule_is_found(rule):
    wrong, right = CASES[rule]
    for text in wrong:
        assert broken(text) == {rule}, text
    for text in right:
        assert broken(text) == set(), text


def test_a_problem_names_its_line_and_its_reason():
    (problem,) = lint("// one\n/* two\nthree */\nBP_FN f32 f(f32 x) {\n  return x * 0.5;\n}\n")
    assert (
        str(problem)
        == "5: suffix: 0.5; constants of f32 end with f: without it they are doubles, which a target may not support"
    )


@pytest.mark.parametrize(
    "text", ["", "BP_FN", "BP_KERNEL(", "BP_KERNEL() {", "#else\n#endif\n#elif", "BP_FN f(", "}}}", "typedef struct {"]
)
def test_a_broken_text_is_read_to_its_end(text):
    assert lint(text) == []


def test_the_library_keeps_the_rules():
    done = CliRunner().invoke(main, ["lint-kernels", str(ROOT / "backend" / "kernels")])
    assert done.exit_code == 0, done.output
    assert int(done.output.split()[0]) > 30


def test_what_the_command_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["lint-kernels"]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "there is no folder backend/kernels here" in done.output) == (2, True)
    folder = tmp_path / "backend" / "kernels"
    folder.mkdir(parents=True)
    (folder / "a.bpc").write_text("BP_FN i32 f(i32 x) { return x; }\n")
    (folder / "not_a_kernel.c").write_text("int x;\n")
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, done.output) == (0, "1 kernel sources, 0 problems\n")
    (folder / "b.bpc").write_text("\nBP_FN f32 f(half x) { goto end; }\n")
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1
    assert done.output == (
        f"backend/kernels/b.bpc:2: goto: a goto; {RULES['goto']}\n"
        f"backend/kernels/b.bpc:2: half: 'half'; {RULES['half']}\n"
        "2 kernel sources, 2 problems\n"
    )
    (folder / "b.bpc").write_bytes(b"BP_FN \xff")
    done = CliRunner().invoke(main, [*command, "backend/kernels/b.bpc"])
    assert (done.exit_code, "b.bpc: not a text in UTF-8" in done.output) == (2, True)
    assert CliRunner().invoke(main, [*command, "nothing.bpc"]).exit_code == 2


def test_the_checker_has_the_loops_of_the_core():
    """The contract checker stands without the core's texts, and tries their loops."""

    def loops(*files: str) -> list[str]:
        text = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files).replace("\\\n", " ")
        found = re.findall(r"^#define (BP_(?:TILE|LANES|AT|TAIL|LANES_FROM|EACH_LANE)\b.*)$", text, re.MULTILINE)
        return sorted(re.sub(r"\s+", " ", line) for line in found)

    core = loops(*(f"backend/kernels/portable/dialect/{name}.bpc" for name in ("core", "generated")))
    assert len(core) == 7
    assert loops("check_driver/checks_dialect_loops.cpp") == core


def test_the_document_has_the_cores_words():
    """What kernels may use without a prelude's help: those of torch.compile, too."""
    page = (ROOT / "docs" / "dialect.md").read_text()
    words = {"bp_place"}
    for name in ("core", "generated"):
        text = (ROOT / "backend/kernels/portable/dialect" / f"{name}.bpc").read_text()
        words |= set(re.findall(r"#define (BP_\w+)", text))
    assert {"BP_EACH_LANE", "BP_LANES_FROM"} < words
    assert [word for word in sorted(words) if word not in page] == []
