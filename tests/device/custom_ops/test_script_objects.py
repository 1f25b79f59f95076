"""Operators that take script objects, and TorchScript, on the device (B22, B23, B26)."""

from pathlib import Path

import pytest
import torch

from torch_backplane.ops import Library

NS = "bp_test_script"

CLASSES = Path(torch.__file__).parent / "lib" / "libtorchbind_test.so"

pytestmark = pytest.mark.once

# Run in another process: torch's library of test classes cannot be unloaded.
PRELUDE = f"""
import logging
import torch
from torch._library.fake_class_registry import maybe_to_fake_obj
from torch._subclasses.fake_tensor import FakeTensorMode

logging.disable(logging.WARNING)
torch.ops.load_library("{CLASSES}")
library = torch.library.Library("{NS}", "DEF")
library.define("scaled(Tensor x, __torch__.torch.classes._TorchScriptTesting._Foo by) -> Tensor")
library.impl("scaled", lambda x, by: x * by.add(1), "PrivateUse1")  # (10 + 20) * 1
scaled = torch.ops.{NS}.scaled
by = torch.classes._TorchScriptTesting._Foo(10, 20)

class Scaling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.by = by

    def forward(self, x):
        return scaled(x, self.by) + 1

class Fake:
    def __init__(self, x, y):
        self.x, self.y = x, y

    @classmethod
    def __obj_unflatten__(cls, flat):
        return cls(**dict(flat))

    def add(self, z):
        return (self.x + self.y) * z

def fail(call, *parts):
    try:
        print("no error:", call())
    except Exception as error:
        print([part in str(error) for part in parts])
"""


@pytest.fixture
def run_with_objects(run_in_process, name):
    if not CLASSES.is_file():
        pytest.skip(f"this torch comes without {CLASSES.name}")

    def run(code):
        return run_in_process(f"{PRELUDE}\nx = torch.ones(3, device='{name}')\n{code}").stdout.splitlines()

    return run


def test_B22_they_are_exported_with_a_fake_one(run_with_objects):
    out = run_with_objects("""
torch._library.register_fake_class("_TorchScriptTesting::_Foo", Fake)
library._register_fake("scaled", lambda x, by: torch.empty_like(x))
print(scaled(x, by).tolist())
leaf = x.clone().requires_grad_()
for example in (x, leaf):
    for autocast in (False, True):
        with torch.autocast(x.device.type, enabled=autocast):
            program = torch.export.export(Scaling(), (example,), strict=False)
            calls = [node for node in program.graph.nodes if node.target is scaled.default]
            print(len(calls), calls[0].meta["val"].device == x.device, program.module()(x).tolist())
print(program.run_decompositions().module()(x).tolist())

# A vendor's rule for the autocast key is called, where the key is skipped without one.
scaled.default.py_impl(torch._C.DispatchKey.AutocastPrivateUse1)(lambda x, by: x - 1)
with FakeTensorMode() as mode:
    fake = maybe_to_fake_obj(mode, by)
with torch.autocast(x.device.type):
    print(scaled.default(x, fake).tolist())
""")
    exported = "1 True [31.0, 31.0, 31.0]"
    assert out == ["[30.0, 30.0, 30.0]", *[exported] * 4, "[31.0, 31.0, 31.0]", "[0.0, 0.0, 0.0]"]


@pytest.mark.long
def test_B23_what_is_missing_for_a_fake_object_is_explained(run_with_objects):
    out = run_with_objects("""
library.define("scaled.twice(Tensor x, __torch__.torch.classes._TorchScriptTesting._Foo by, int n) -> Tensor")
mode = FakeTensorMode()
fail(lambda: maybe_to_fake_obj(mode, by), "haven't registered a fake class", "_TorchScriptTesting::_Foo")
torch._library.register_fake_class("_TorchScriptTesting::_Foo", Fake)
fake = maybe_to_fake_obj(mode, by)
fail(lambda: scaled.default(x, fake), "received a FakeScriptObject", "dispatching DispatchKey.PrivateUse1", "no python")
fail(lambda: scaled(fake, x), "Fail to match any", "Overload name default:", "Overload name twice:", "argument 'x'")
scaled.default.py_impl(torch._C.DispatchKey.PrivateUse1)(lambda x, by: x * by.wrapped_obj.x)
print(scaled.default(x, fake).tolist())
""")
    assert out == ["[True, True]", "[True, True, True]", "[True, True, True, True]", "[10.0, 10.0, 10.0]"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_B26_vendor_operators_can_be_called_from_torchscript(device):
    with Library(NS, "FRAGMENT") as library:
        library.define("halved(Tensor x, *, int times=1) -> Tensor")
        library.impl("halved", lambda x, *, times=1: x / 2**times, "PrivateUse1")
        unit = torch.jit.CompilationUnit(f"""
def program(x):
    return torch.ops.{NS}.halved(x + 1, times=2)

def plain(x):
    return torch.relu(x) * 2
""")
        x = torch.linspace(-1, 1, 5).to(device)
        assert f"{NS}::halved" in str(unit.program.graph)
        torch.testing.assert_close(unit.program(x).cpu(), (x.cpu() + 1) / 4)
        torch.testing.assert_close(unit.plain(x).cpu(), x.cpu().relu() * 2)
