"""``_C``, the native module: its stub is complete; its functions check their arguments and raise torch's errors."""

import ast
import gc
import re
import sys
import warnings
import weakref
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest
import torch

from torch_backplane import _backend, fallback

pytestmark = pytest.mark.once


def public(thing):
    return {name for name in dir(thing) if not name.startswith("__")}


@pytest.fixture(scope="module")
def stub():
    """The classes of ``_native.pyi`` by name: their members, and the number of arguments of a function."""
    source = Path(_backend.__file__).with_name("_native.pyi").read_text()
    classes = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            members = classes[node.name] = {}
            for member in node.body:
                if isinstance(member, ast.AnnAssign):
                    members[member.target.id] = ast.unparse(member.annotation)
                elif isinstance(member, ast.FunctionDef):
                    assert not member.args.args, f"{node.name}.{member.name}: arguments are positional"
                    members[member.name] = len(member.args.posonlyargs) - 1
    return classes


def test_the_stub_has_what_the_module_has(stub):
    module = stub["Module"]
    assert public(_backend.C) == module.keys()
    parts = {name for name in module if isinstance(getattr(_backend.C, name), ModuleType)}
    assert parts == {name for name, annotation in module.items() if annotation in stub}
    for name in parts:
        part = getattr(_backend.C, name)
        assert public(part) == stub[module[name]].keys(), name
        for function, arguments in stub[module[name]].items():
            with pytest.raises(TypeError, match=rf"^{name}\.{function}\(\) takes {arguments} argument\(s\), not 99"):
                getattr(part, function)(*[None] * 99)


def test_a_wrong_number_of_arguments(device):
    with pytest.raises(TypeError, match=r"^devices\.set\(\) takes 1 argument\(s\), not 0"):
        _backend.C.devices.set()
    with pytest.raises(TypeError, match=r"^devices\.current\(\) takes 0 argument\(s\), not 1"):
        _backend.C.devices.current(0)
    with pytest.raises(TypeError, match="keyword"):
        _backend.C.devices.set(device=0)


@pytest.mark.parametrize("wrong", ["0", 0.5, [], None])
def test_a_wrong_type_names_the_argument(device, wrong):
    with pytest.raises(
        TypeError, match=rf"^argument 2 of streams\.priority\(\) cannot be of type {type(wrong).__name__}"
    ):
        _backend.C.streams.priority(0, wrong)


@pytest.mark.parametrize(
    ("function", "arguments", "wrong"),
    [
        ("memory.block_size", (-1,), "int"),  # is no address
        ("memory.end_pool", (0, (1,)), "tuple"),  # is no pair
        ("fallback.set_op_policy", ("add.Tensor", 3), "int"),
        ("history.record", (True, 0, False, 10, True, [1]), "list"),
        ("memory.host_view", (1,), "int"),
        ("fallback.run", ("aten::add", "Tensor", [], {}), "list"),
        ("ipc.event_device", ("event",), "str"),
    ],
)
def test_every_kind_of_argument_is_checked(device, function, arguments, wrong):
    with pytest.raises(TypeError, match=rf"of {re.escape(function)}\(\) cannot be of type {wrong}"):
        attrgetter(function)(_backend.C)(*arguments)


def test_errors_are_pytorchs(device):
    with pytest.raises(RuntimeError, match="invalid device index 99"):
        _backend.C.devices.set(99)
    with pytest.raises(ValueError, match="a shared storage has 5 parts, not 1"):
        _backend.C.ipc.release((1,))


def test_a_capsule_of_something_else_is_no_event(device):
    with pytest.raises(TypeError, match=r"the capsule does not contain a backplane\.Event"):
        _backend.C.ipc.event_device(torch.ones(1).__dlpack__())


def test_warnings_are_pythons_and_may_be_errors(device):
    def warn():
        with fallback.policy("warn"):
            return _backend.C.fallback.run("aten::frac", "", (torch.tensor([1.5], device=device),), {})

    with pytest.warns(UserWarning, match="the CPU computes it"):
        assert warn().tolist() == [0.5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="the CPU computes it"):
            warn()


def test_arguments_are_released(device):
    class Named(str):
        pass

    name = Named("portable/add.Tensor")
    gone = weakref.ref(name)
    references = sys.getrefcount(name)
    _backend.C.kernels.calls(name)
    with pytest.raises(TypeError):
        _backend.C.streams.priority(0, name)
    gc.collect()
    assert sys.getrefcount(name) == references
    del name
    assert gone() is None
