"""docs/migration.md: what it says of torch's C++ interfaces, by a compiler, the installed headers, and libtorch."""

import mmap
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from pages import ROOT, code, text_of

import backplane_sdk

PAGE = "docs/migration.md"
INCLUDE = Path(torch.__file__).parent / "include"


@pytest.fixture(scope="module")
def library_text():
    """Whether libtorch has a text."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield lambda text: content.find(text.encode()) >= 0


def header(name):
    return (INCLUDE / name).read_text(encoding="utf-8")


@pytest.mark.long
def test_R06_R14_R15_R16_R17_R19_R20_R21_R25_the_compiler_agrees(tmp_path):
    """With the page's own C++ behind it."""
    source = tmp_path / "migration.cpp"
    shown = code(PAGE, "cpp")
    source.write_text((Path(__file__).parent / "cpp" / "migration.cpp").read_text() + "\n".join(shown))
    compiler = shutil.which("c++") or "g++"
    include = ["-isystem", INCLUDE, "-I", backplane_sdk.include_dir(), "-I", backplane_sdk.source_dir() / "backend"]
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", *include, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_R14_the_generators_macro_warns(library_text):
    assert library_text("REGISTER_GENERATOR_PRIVATEUSE1 is deprecated")
    hooks = header("ATen/detail/PrivateUse1HooksInterface.h")
    assert re.search(r"getNewGenerator\(.*?GetGeneratorForPrivateuse1\(device_index\)", hooks, re.DOTALL)


def test_R16_hooks_are_registered_once_and_there_is_no_registry(library_text):
    assert library_text("PrivateUse1HooksInterface only could be registered once")
    assert not library_text("PrivateUse1HooksRegistry")
    assert "Registry" not in header("ATen/detail/PrivateUse1HooksInterface.h")


def test_R17_the_older_name_of_lazy_init_warns():
    assert "lazyInitPrivateUse1 is deprecated. Please use lazyInitDevice" in header("ATen/Context.h")


def test_R19_the_choice_has_the_flag():
    names = [argument.name for argument in torch.ops.aten._fused_sdp_choice.default._schema.arguments]
    assert names[-2:] == ["scale", "enable_gqa"]


@pytest.mark.long
@pytest.mark.parametrize(("flag", "works"), [([], True), (["-DC10_NODEPRECATED"], False)])
def test_R20_the_aliases_are_gone_without_deprecated_names(tmp_path, flag, works):
    source = tmp_path / "optional.cpp"
    source.write_text(
        "#include <c10/util/Optional.h>\nc10::optional<int> a = c10::make_optional(1), b = c10::nullopt;\n"
    )
    command = [shutil.which("c++") or "g++", "-std=c++20", "-fsyntax-only", "-isystem", INCLUDE, *flag, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode == 0) is works, done.stderr


def test_R21_the_older_header_includes_the_newer():
    pickler = header("torch/csrc/jit/serialization/pickler.h")
    assert "#include <torch/csrc/jit/serialization/pickler_helper.h>" in pickler
    assert "TensorBackendMetaRegistry" not in pickler


def test_R25_the_guard_that_does_nothing_has_one_device_without_an_index():
    guards = header("c10/core/impl/DeviceGuardImplInterface.h")
    body = guards.partition("struct NoOpDeviceGuardImpl")[2].partition("\n};")[0]
    assert re.search(r"getDevice\(\) const override \{\s*return Device\(D, -1\);", body)
    assert re.search(r"deviceCount\(\) const noexcept override \{\s*return 1;", body)
    assert re.search(r"exchangeStream\(.*?no-op", body, re.DOTALL)


def test_what_to_leave_out_is_what_the_core_does():
    """Each registration that the page says to leave out is made by the SDK, the generator's by way of the hooks."""
    sentence = text_of(PAGE).partition("Leave out what")[2].partition("\n\n")[0]
    names = [name.rpartition(".")[2] for name in re.findall(r"`([\w:.]+)(?:\(\.\.\.\))?`", sentence)]
    ours = {"C10_REGISTER_GUARD_IMPL": "DeviceGuardImplRegistrar", "REGISTER_GENERATOR_PRIVATEUSE1": "getNewGenerator"}
    folders = [ROOT / "backend", ROOT / "python" / "torch_backplane"]
    code = "".join(
        path.read_text() for folder in folders for path in folder.rglob("*.*") if path.suffix in (".cpp", ".py")
    )
    assert len(names) == 9
    assert [name for name in names if ours.get(name, name) not in code] == []
