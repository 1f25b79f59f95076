"""The process that translates TTIR for a driver: what it writes, and that it needs neither Triton nor torch."""

import subprocess
import sys

import pytest

MODULE = """module {
  tt.func public @f(%n: i64, %p: !tt.ptr<f32>, %x: f16, %y: f64) {
    %a = tt.load %p : !tt.ptr<f32>
    MORE
    tt.store %p, %a : !tt.ptr<f32>
    tt.return
  }
}
"""
WITHOUT = """import sys
sys.modules["torch"] = sys.modules["triton"] = None
from torch_backplane.triton.translate import main
main()
"""


def translate(text, tmp_path, *words):
    out = tmp_path / "out"
    command = [sys.executable, "-c", WITHOUT, "--out", str(out), *words]
    subprocess.run(command, input=text, text=True, check=True)
    return out.read_text(encoding="utf-8")


@pytest.mark.parametrize("items", [1, 64])
def test_a_module_becomes_a_unit(tmp_path, items):
    text = translate(MODULE.replace("MORE", ""), tmp_path, "--items", str(items))
    head, unit = text.split("\n", 1)
    assert head == "right 0 ipfd"
    assert unit.startswith("/* dialect/core.bpc")
    assert "BP_KERNEL(generated, 1, Generated, BP_GLOBAL f32* p0_) {" in unit
    assert "BP_GROUP_ID(2)" in unit
    assert "typedef struct { i64 n0; i64 n1; i64 n2; i64 site_; } Generated;" in unit


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("%b = arith.addf %a, %none : f32", r"wrong\nline 4 of the TTIR cannot be read: %b = arith.addf"),
        ('tt.print "x" {hex = false, isSigned = array<i32: 0>} : %a : f32', "wrong\n: device_print and device_assert"),
    ],
)
def test_T02_a_wrong_module_has_a_log(tmp_path, more, why):
    assert translate(MODULE.replace("MORE", more), tmp_path).startswith(why.replace("\\n", "\n"))


def test_the_id_names_the_lowering(tmp_path):
    words = translate("", tmp_path, "--id").split()
    assert words[0] == "torch_backplane.triton"
    assert len(words[2]) == 16
