"""``torch-backplane drift``: what it reads, what it finds, and that the record matches the sources and this torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import backplane_sdk
from backplane_tools.cli.drift import drift
from backplane_tools.drift import DEVELOPED_WITH, SECTIONS, Change, Surface, compare, record
from backplane_tools.drift.cpp import read_classes, virtual_functions
from backplane_tools.drift.look import look, registered_operators
from backplane_tools.drift.uses import cpp_classes, cpp_headers, python_files, python_uses

# What compat/ asks for before it is used: the torch that has it first.
SINCE = {
    "torch._inductor.codegen.cpp_wrapper_cpu.CppWrapperCpu._compatible_with_cpp_boxed_dispatch": "2.13",
    "torch._inductor.stream_utils.DEFAULT_STREAM_IDX": "2.12",
    "torch._inductor.stream_utils.get_stream_name": "2.12",
}

pytestmark = pytest.mark.xdist_group("drift")  # one process looks at torch, once
MINOR = ".".join(torch.__version__.split(".")[:2])


@pytest.fixture(scope="module")
def here():
    return look()


def command(*words: object):
    return CliRunner().invoke(drift, [str(word) for word in words])


def surface(version: str, **sections: dict[str, str]) -> Surface:
    return Surface(version, {section: sections.get(section, {}) for section in SECTIONS}, {})


def test_virtual_functions_are_read_as_they_are_declared():
    text = """
    namespace c10 { class Forward; namespace impl {
    // virtual void comment();
    #define MACRO virtual void macro(); \\
      { {
    struct C10_API Base {  /* } */
      virtual ~Base() = default;
      virtual int f(const char * a = "}", Pair b = {0, 0}) const = 0;
      void plain() { if (true) { virtual_like(); } }
    };
    class TORCH_API(x) Derived final : public Base, private std::vector<Pair<int, Forward>> {
     public:
      struct Options : Base { Options() : Base{} {} void set( int  x ) override { x_ = x; } };
      [[nodiscard]] virtual const Map<int,int>&names() const { return names_; }
      int f(const char*, Pair) const override;
      enum class Kind { a, b };
    };
    }}
    """
    classes = read_classes(text)
    assert {name: (one.bases, one.virtual) for name, one in classes.items()} == {
        "c10::impl::Base": (
            (),
            ["virtual ~Base() = default", "virtual int f(const char* a = , Pair b = {0, 0}) const = 0"],
        ),
        "c10::impl::Derived::Options": (("Base",), ["void set(int x) override"]),
        "c10::impl::Derived": (
            ("Base", "std::vector"),
            ["virtual const Map<int, int>& names() const", "int f(const char*, Pair) const override"],
        ),
    }


def test_classes_are_found_with_those_that_they_derive_from(tmp_path):
    (tmp_path / "c10").mkdir()
    (tmp_path / "c10" / "a.h").write_text("namespace c10 { struct Root { virtual void g() = 0; }; class Leaf; }")
    (tmp_path / "c10" / "b.h").write_text("namespace c10::x { struct Leaf : public Root {}; }")
    assert virtual_functions(tmp_path, {"c10::x::Leaf", "c10::None"}) == {
        "c10::x::Leaf": "",
        "c10::Root": "virtual void g() = 0",
    }


def test_private_names_are_read_from_python():
    uses = python_uses(
        [
            "import torch._inductor.x\nimport torch\nimport torch._y.z as z\n"
            "from torch._ops import A\nfrom torch.amp import _cast, b\n"
            "torch._C.f(torch.nn._q.r.s, torch.x, z.w, A.member, b.public)",
            "from torch._k import K\nclass Ours(K):\n def over(self): return super().above() + self.own + other.not_it",
            "from x import Ours\nclass Third(Ours):\n third = 1\n",
        ]
    )
    names = "torch._C.f torch._inductor.x torch._k.K torch._ops.A torch._y.z torch._y.z torch.amp._cast torch.nn._q.r"
    assert uses.names == {*names.split()}
    assert uses.attributes == {
        "torch._ops.A.member",
        "torch._y.z.w",
        "torch.nn._q.r.s",
        *(f"torch._k.K.{name}" for name in ("over", "above", "own", "third")),
    }


def test_torch_has_every_private_name(here):
    """A name that torch's versions spell differently is not used in the runtime: compat/ has a function for it."""
    uses = python_uses(path.read_text(encoding="utf-8") for path in python_files(compat=False))
    assert len(uses.names) > 100
    absent = uses.names - here.texts["python"].keys()
    assert absent == {name for name, first in SINCE.items() if torch.__version__ < first}
    assert uses.names >= SINCE.keys()


def test_the_core_is_read(here):
    """Every class and header that this torch's build of the core needs is found in torch's headers."""
    assert {
        "c10::DeviceAllocator",
        "c10d::Backend",
        "c10d::Backend::Options",
        "at::TensorIteratorBase",
    } <= cpp_classes()
    classes = here.texts["classes"]
    assert "virtual void recordStream(const DataPtr& ptr, c10::Stream stream) = 0" in classes["c10::DeviceAllocator"]
    assert "virtual DataPtr allocate(size_t n) = 0" in classes["c10::Allocator"]  # derived from
    not_here = cpp_classes() - classes.keys()
    assert not_here <= {"at::GraphImplInterface"}
    assert not not_here or torch.__version__ < "2.13"
    if MINOR == DEVELOPED_WITH:
        guarded = {"ATen/core/Dimname.h"}  # for an older torch, by __has_include
        assert cpp_headers() - here.texts["headers"].keys() <= guarded


def test_V01_the_record_matches_the_sources_and_this_torch(here):
    """Where this fails after an edit: torch-backplane drift --record python/backplane_tools/drift/surfaces.json."""
    assert record.minors() == list(backplane_sdk.TORCH_MINORS)
    assert here.unknown == {}
    assert list(compare(record.read(MINOR), here)) == []
    assert registered_operators() <= record.operators()


@pytest.mark.long
def test_V01_what_has_changed_is_reported(here, tmp_path):
    """A record of another time: a parameter, a virtual function, a header, a schema, a name and a table that came."""
    texts = json.loads(json.dumps(here.texts))
    wrong = {
        "python": ("torch._C._get_schema", "changed"),
        "classes": ("c10::Allocator", "changed"),
        "headers": ("c10/gone.h", "gone"),
        "operators": ("aten::add.Tensor", "new"),
        "stubs": ("kaiser_window_stub", "new"),
    }
    texts["python"]["torch._C._get_schema"] = "(other)"
    texts["classes"]["c10::Allocator"] += "\nvirtual void more() = 0"
    texts["headers"]["c10/gone.h"] = "there"
    del texts["operators"]["aten::add.Tensor"]
    del texts["stubs"]["kaiser_window_stub"]
    file, report = tmp_path / "then.json", tmp_path / "report.json"
    record.write(Surface(here.version, texts, {}), file)
    result = command("--against", file, "--json", report)
    assert result.exit_code == 1, result.output
    document = json.loads(report.read_text())
    assert {one["section"]: (one["name"], one["change"]) for one in document["changes"]} == wrong
    assert "- virtual void more() = 0" in result.output
    assert "5 changes" in result.output
    assert (document["torch"], document["against"]) == (torch.__version__, MINOR)


def test_V01_versions_of_the_record_are_compared_without_a_torch(tmp_path):
    report = tmp_path / "report.json"
    assert command("--torch", "2.13", "--against", "2.13").exit_code == 0
    assert command("--torch", "2.15", "--against", "2.11", "--json", report).exit_code == 1
    changes = {(one["section"], one["name"]): one for one in json.loads(report.read_text())["changes"]}
    assert changes["headers", "ATen/core/GraphImplInterface.h"]["change"] == "new"
    assert changes["headers", "ATen/core/Dimname.h"]["change"] == "gone"
    assert "isStreamCapturing" in changes["classes", "c10::impl::DeviceGuardImplInterface"]["after"]
    assert changes["operators", "aten::_upsample_lanczos2d_aa"]["change"] == "new"


def test_a_record_is_written_by_versions_and_read_back(tmp_path):
    file = tmp_path / "surfaces.json"
    old = surface("2.9.1", python={"a": "()", "b": "()"})
    new = surface("2.10.0+cpu", python={"a": "(x)", "b": "()"}, headers={"h": "there"})
    record.write(new, file)
    record.write(old, file)
    assert json.loads(file.read_text())["python"] == {"a": {"2.9": "()", "2.10": "(x)"}, "b": {"2.9 2.10": "()"}}
    assert record.minors(file) == ["2.9", "2.10"]
    assert [(c.name, c.kind) for c in compare(record.read("2.9", file), record.read("2.10", file))] == [
        ("a", "changed"),
        ("h", "new"),
    ]
    record.write(surface("2.9.2", python={"b": "()"}), file)
    assert "a" not in record.read("2.9", file).texts["python"]
    several = command("--against", file)
    assert several.exit_code == 2
    assert "2.9, 2.10: record one torch a file" in several.output


def test_what_cannot_be_looked_up_is_no_change(tmp_path):
    seen = surface("2.13", python={"a": "()", "b": "()"})
    blind = Surface("2.14", {**seen.texts, "python": {"b": "(x)"}}, {"a": "No module named 'numpy'"})
    assert list(compare(seen, blind)) == [Change("python", "b", "()", "(x)")]
    with pytest.raises(ValueError, match="such as a: No module named 'numpy'"):
        record.write(blind, tmp_path / "file")


def test_a_torch_in_a_folder_and_one_that_breaks(tmp_path):
    """A folder comes before this environment's torch; what cannot be imported is said, in one line."""
    torch_folder = tmp_path / "torch"
    torch_folder.mkdir()
    (torch_folder / "version.py").write_text("")
    (torch_folder / "__init__.py").write_text("raise ImportError('libcudart.so.12 is not there')\n")
    for where in (tmp_path, torch_folder):
        result = command("--torch", where)
        assert result.exit_code == 2
        assert "torch cannot be looked at: ImportError: libcudart.so.12 is not there" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--torch", "/no/such"), "/no/such: no such file or folder, nor a version of the record (2.11, "),
        (("--torch", Path(__file__).parent), "neither an interpreter, nor an environment, nor a folder with torch"),
        (("--against", Path(__file__).parents[2] / "cookiecutter.json"), "not a file that drift --record has written"),
        (("--record", "x", "--against", "2.11"), "--record compares nothing"),
    ],
)
def test_what_it_refuses(words, said):
    result = command(*words)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_it_loads_no_backend():
    """Nor needs one: the torch is looked at by another process, with nothing of the SDK in it."""
    code = (
        "import sys\nfrom backplane_tools.cli import main\n"
        "main(['drift', '--torch', '2.11', '--against', '2.11'], standalone_mode=False)\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
