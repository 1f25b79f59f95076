"""TTIR of three releases of Triton is read and lowered: no Triton is needed for that."""

import re
from pathlib import Path

import pytest

from torch_backplane.triton.lowering import lower
from torch_backplane.triton.pointers import Pointers
from torch_backplane.triton.reader import TextError, read, read_type
from torch_backplane.triton.ttir import Type
from torch_backplane.triton.words import Unsupported

TEXTS = Path(__file__).with_name("ttir")
RELEASES = ["3.5", "3.7", "3.9"]


def text_of(name, release="3.7"):
    return (TEXTS / f"{name}-{release}.ttir").read_text()


def operations(blocks):
    for block in blocks:
        for op in block.ops:
            yield op
            for region in op.regions:
                yield from operations(region)


@pytest.mark.parametrize("release", RELEASES)
def test_operations_and_their_types(release):
    kernel = read(text_of("attention", release)).kernel
    assert kernel.name == "attention"
    assert [value.type for value in kernel.arguments][:2] == [Type("ptr", None, Type("f32"))] * 2
    assert [value.type.elem for value in kernel.arguments[4:]] == ["f32", "i32"]
    found = list(operations(kernel.blocks))
    (loop,) = [op for op in found if op.name == "scf.for"]
    assert len(loop.results) == 3
    assert loop.results[0].type in (Type("f32", (32,)), Type("f32", (32, 32)))
    products = [op for op in found if op.name == "tt.dot"]
    assert [op.result.type.shape for op in products] == [(32, 16), (32, 32)]
    reductions = [op for op in found if op.name == "tt.reduce"]
    assert [op.integer("axis") for op in reductions] == [1, 1]
    assert all(op in value.users for op in found for value in op.operands)
    assert all(op.location.startswith("language.py:") for op in products)


@pytest.mark.parametrize("release", RELEASES)
def test_blocks_of_a_function_and_where_branches_lead(release):
    kernel = read(text_of("early_return", release)).kernel
    branches = [op for op in operations(kernel.blocks) if op.name == "cf.cond_br"]
    assert branches
    labels = {block.label for block in kernel.blocks}
    assert all(label in labels for op in branches for label, _ in op.targets)


@pytest.mark.parametrize("items", [1, 8, 64])
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["attention", "scans", "early_return", "while_loop"])
def test_T02_a_kernel_of_the_dialect(name, release, items):
    kernel = lower(text_of(name, release), items)
    assert kernel.name == name
    assert kernel.text.count("BP_KERNEL(generated, ") == 1
    assert kernel.arguments.count("ptr") == text_of(name, release).split("tt.func public")[1].splitlines()[0].count(
        "!tt.ptr"
    )
    assert ("BP_BARRIER();" in kernel.text) == (items > 1)
    assert (kernel.local_bytes > 0) == (items > 1)
    assert "BP_RESTRICT" not in kernel.text  # tensors of a launch may overlap


def test_the_types_of_the_text():
    assert read_type("tensor<4x8x!tt.ptr<f16>>") == Type("ptr", (4, 8), Type("f16"))
    assert read_type("!tt.ptr<!tt.ptr<i8>>").pointee.pointee == Type("i8")
    assert read_type("tensor<1xi1>").bits == 8


def test_T02_text_that_cannot_be_read_names_its_line():
    with pytest.raises(TextError, match=r"^line 3 of the TTIR cannot be read: tt\.store %missing"):
        read("module {\n  tt.func public @f() {\n    tt.store %missing, %missing : f32\n    tt.return\n  }\n}\n")


def test_T02_what_is_not_lowered_names_the_users_line():
    text = """module {
  tt.func public @f(%p: !tt.ptr<f32> loc(unknown)) {
    %x = tt.load %p : !tt.ptr<f32> loc(#loc1)
    %y = tt.elementwise_inline_asm "add" {packed_element = 1 : i32} %x : f32 -> f32 loc(#loc2)
    tt.store %p, %y : !tt.ptr<f32> loc(#loc1)
    tt.return loc(#loc1)
  } loc(#loc1)
} loc(#loc1)
#loc1 = loc("kernel.py":3:4)
#loc2 = loc("y"(#loc3))
#loc3 = loc("kernel.py":7:11)
"""
    with pytest.raises(Unsupported, match=r"^kernel.py:7: tt.elementwise_inline_asm: .*write it with functions of tl"):
        lower(text, 1)


def test_T02_what_is_not_lowered_names_its_line_and_not_the_stores():
    text = """module {
  tt.func public @f(%p: !tt.ptr<f32> loc(unknown)) {
    %at = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32> loc(#loc1)
    %all = tt.splat %p : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>> loc(#loc1)
    %q = tt.addptr %all, %at : tensor<8x!tt.ptr<f32>>, tensor<8xi32> loc(#loc1)
    %x = tt.load %q : tensor<8x!tt.ptr<f32>> loc(#loc1)
    %y = tt.extern_elementwise %x {libname = "", libpath = "", pure = true, symbol = "__nv_y0f"} : (tensor<8xf32>) -> tensor<8xf32> loc(#loc2)
    tt.store %q, %y : tensor<8x!tt.ptr<f32>> loc(#loc1)
    tt.return loc(#loc1)
  } loc(#loc1)
} loc(#loc1)
#loc1 = loc("kernel.py":3:4)
#loc2 = loc("kernel.py":7:11)
"""  # noqa: E501
    with pytest.raises(Unsupported, match=r"^kernel.py:7: tt.extern_elementwise: __nv_y0f of libdevice"):
        lower(text, 1)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("name", "expected"), [("attention", "rrrw"), ("scans", "rrwwww"), ("early_return", "rw"), ("while_loop", "rww")]
)
def test_T11_what_a_kernel_reads_and_writes(name, release, expected):
    assert Pointers(read(text_of(name, release))).accesses == expected


POINTERS = """module {
  tt.func public @kernel(%a: PTR, %b: PTR, %c: PTR, %d: !tt.ptr<i64>, %e: PTR, %n: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %x:2 = scf.for %i = %zero to %n step %one iter_args(%p = %a, %q = %b) -> (PTR, PTR)  : i32 {
      %next = tt.addptr %p, %one : PTR, i32
      scf.yield %q, %next : PTR, PTR
    }
    %v = tt.load %x#0 : PTR
    %far = tt.load %d : !tt.ptr<i64>
    %pointer = tt.int_to_ptr %far : i64 -> PTR
    tt.store %pointer, %v : PTR
    %some = arith.cmpi sgt, %n, %one : i32
    %t = scf.if %some -> (PTR) {
      scf.yield %c : PTR
    } else {
      scf.yield %a : PTR
    }
    tt.call @callee(%t, %v) : (PTR, f32) -> ()
    tt.return
  }
  tt.func private @callee(%to: PTR, %v: f32) attributes {noinline = true} {
    tt.store %to, %v : PTR
    tt.return
  }
}
""".replace("PTR", "!tt.ptr<f32>")


def test_T11_pointers_are_followed_through_loops_branches_and_calls():
    assert Pointers(read(POINTERS)).accesses == "brwr-"


ONLY_OTHERWISE = """module {
  tt.func public @kernel(%a: !tt.ptr<i32>, %n: i32, %m: i32) {
    %some = arith.cmpi sgt, %n, %m : i32
    scf.if %some {
    } else {
      tt.store %a, %n : !tt.ptr<i32>
    }
    tt.return
  }
}
"""


def test_T02_a_branch_that_does_nothing():
    kernel = lower(ONLY_OTHERWISE, 1)
    assert kernel.accesses == "w"
    assert re.search(r"else \{\s+p0_\[0\] = n_0_;", kernel.text)
