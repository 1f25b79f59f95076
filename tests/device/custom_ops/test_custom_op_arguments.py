"""The arguments and results of a device kernel of a vendor's operator: every type that a schema can have."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch._library.infer_schema import SUPPORTED_PARAM_TYPES, SUPPORTED_RETURN_TYPES
from torch.library import infer_schema

NAMESPACE = "bp_test_arguments"


@pytest.fixture
def x(device):
    return torch.arange(4.0, device=device)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (float | None, None),
        (int, 7),
        (float, 0.5),
        (bool, True),
        (str, "text"),
        (torch.dtype, torch.bfloat16),
        (torch.device, "cpu"),
        (torch.device, "{}:1"),
        (torch.device, "{}"),
    ],
)
def test_C04_a_default_reaches_the_kernel_unchanged(ops, x, device, annotation, default):
    if annotation is torch.device:
        default = torch.device(default.format(device.type))
    seen = []

    def function(x, d=default):
        seen.append(d)
        return x.clone()

    function.__annotations__ = {"x": Tensor, "d": annotation, "return": Tensor}
    op = ops.custom("default", function, device_types=device.type)
    argument = op._opoverload._schema.arguments[1]
    assert argument.has_default_value()
    op(x)
    op(x, default)
    assert seen == [default, default]
    assert [type(value) for value in seen] == [type(default)] * 2


class Sizes(Sequence):
    """A sequence that is neither a list nor a tuple."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return (5, 6, 7)[index]


@pytest.mark.parametrize("sizes", [[5, 6, 7], (5, 6, 7), torch.Size([5, 6, 7]), Sizes(), range(5, 8)])
def test_C09_any_sequence_of_integers_arrives_as_a_list(ops, x, device, sizes):
    seen = []

    def function(x: Tensor, sizes: Sequence[int]) -> Tensor:
        seen.append(sizes)
        return x.new_zeros(sizes)

    op = ops.custom("sequence", function, device_types=device.type)
    assert op(x, sizes).shape == (5, 6, 7)
    assert seen == [[5, 6, 7]]
    assert type(seen[0]) is list


def values(schema_type, x, device):
    """Arguments of a schema's type, for a device kernel."""
    base = {
        "Tensor": x,
        "SymInt": 3,
        "float": 2.5,
        "bool": True,
        "str": "text",
        "Scalar": 1.5,
        "ScalarType": torch.float16,
        "Device": torch.device(device.type, 1),
    }
    name = schema_type.rstrip("?[]")
    suffix = schema_type.removeprefix(name)
    one = base[name]
    return {
        "": [one],
        "?": [one, None],
        "[]": [[one, one], []],
        "?[]": [[one, None]],
        "[]?": [[one, one], None],
        "?[]?": [[one, None], None],  # since torch 2.15
    }[suffix]


def same(found, given):
    if isinstance(given, list):
        return type(found) is list and len(found) == len(given) and all(map(same, found, given))
    if isinstance(given, Tensor):
        return found.device == given.device and torch.equal(found, given)
    return type(found) is type(given) and found == given


@pytest.mark.parametrize("annotation", SUPPORTED_PARAM_TYPES, ids=str)
def test_C01_C11_every_parameter_type_is_inferred_and_arrives_equal(ops, x, device, annotation):
    seen = []

    def function(x, value):
        seen.append(value)
        return x.clone()

    function.__annotations__ = {"x": Tensor, "value": annotation, "return": Tensor}
    op = ops.custom("parameter", function, device_types=device.type)
    type_ = SUPPORTED_PARAM_TYPES[annotation]
    assert infer_schema(function, mutates_args=()) == f"(Tensor x, {type_} value) -> Tensor"
    for value in values(type_, x, device):
        op(x, value)
        assert same(seen[-1], value), (seen[-1], value)


@pytest.mark.parametrize("annotation", SUPPORTED_RETURN_TYPES, ids=str)
@pytest.mark.parametrize("pair", [False, True], ids=["single", "pair"])
def test_C10_every_return_type_survives_a_kernel(ops, x, device, annotation, pair):
    (value, *_) = values(SUPPORTED_RETURN_TYPES[annotation], x, device)

    def result():
        if isinstance(value, Tensor):
            return value.clone()
        return [tensor.clone() for tensor in value] if isinstance(value, list) else value

    def function(x):
        return (result(), result()) if pair else result()

    function.__annotations__ = {"x": Tensor, "return": tuple[annotation, annotation] if pair else annotation}
    op = ops.custom("result", function, device_types=device.type)
    found = op(x)
    expected = [value, value] if pair else [value]
    assert same(list(found) if pair else [found], expected)


def double_(x: Tensor) -> Tensor:
    return x.mul_(2)


def double(x: Tensor, *, out: Tensor) -> Tensor:
    return torch.mul(x, 2, out=out)


def copies(x: Tensor) -> Tensor:
    return x.clone()


def test_C14_operators_tagged_inplace_and_out_return_what_they_wrote(ops, x, device):
    options = {"tags": torch.Tag.inplace, "device_types": device.type, "mutates_args": {"x"}}
    inplace = ops.custom("double_", double_, **options)
    out = ops.custom("double_out", double, mutates_args={"out"}, tags=torch.Tag.out, device_types=device.type)
    assert str(inplace._opoverload._schema).endswith("double_(Tensor(a0!) x) -> Tensor(a0!)")
    version = x._version
    assert inplace(x) is x
    assert x._version > version
    y = torch.empty_like(x)
    assert out(x, out=y) is y
    assert (x.tolist(), y.tolist()) == ([0, 2, 4, 6], [0, 4, 8, 12])
    with torch._subclasses.FakeTensorMode() as mode:  # the fakes that torch generates
        x, y = mode.from_tensor(x), mode.from_tensor(y)
        assert inplace(x) is x
        assert out(x, out=y) is y
    with pytest.raises(RuntimeError, match="must return its first argument"):
        ops.custom("copies_", copies, **options)(torch.ones(1, device=device))


def test_B06_C70_overloads_are_chosen_by_their_arguments_also_those_that_are_added_later(ops, x):
    ops.define("scaled(Tensor x) -> Tensor", PrivateUse1=lambda x: x + 1)
    packet = ops.scaled
    assert packet(x).tolist() == [1, 2, 3, 4]  # the packet is cached before it grows
    ops.define("scaled.by(Tensor x, int n) -> Tensor", PrivateUse1=lambda x, n: x * n)
    ops.define("scaled.text(Tensor x, str n) -> Tensor", PrivateUse1=lambda x, n: x - len(n))
    assert packet(x).tolist() == [1, 2, 3, 4]
    assert packet(x, 3).tolist() == [0, 3, 6, 9]
    assert packet(x, "two").tolist() == [-3, -2, -1, 0]
    assert packet.by(x, 2).tolist() == [0, 2, 4, 6]
    assert packet.overloads() == ["default", "by", "text"]
    with pytest.raises(RuntimeError, match="scaled"):
        packet(x, [1])
