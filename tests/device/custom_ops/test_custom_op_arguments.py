"""The arguments and results of a device kernel of a vendor's operator: every type that a schema can have."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch._library.infer_schema import SUPPORTED_PARAM_TYPES, SUPPORTED_RETURN_TYPES

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
def test_C11_every_parameter_type_arrives_equal(ops, x, device, annotation):
    seen = []

    def function(x, value):
        seen.append(value)
        return x.clone()

    function.__annotations__ = {"x": Tensor, "value": annotation, "return": Tensor}
    op = ops.custom("parameter", function, device_types=device.type)
    for value in values(SUPPORTED_PARAM_TYPES[annotation], x, device):
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


def test_C14_an_inplace_operator_returns_its_argument(ops, x, device):
    def double_(x: Tensor) -> Tensor:
        return x.mul_(2)

    op = ops.custom("double_", double_, mutates_args={"x"}, tags=torch.Tag.inplace, device_types=device.type)
    assert str(op._opoverload._schema).endswith("double_(Tensor(a0!) x) -> Tensor(a0!)")
    version = x._version
    assert op(x) is x
    assert x.tolist() == [0, 2, 4, 6]
    assert x._version > version
    with torch._subclasses.FakeTensorMode() as mode:  # the fake that torch generates
        fake = mode.from_tensor(x)
        assert op(fake) is fake


def test_C14_an_out_operator_returns_what_it_wrote(ops, x, device):
    def double(x: Tensor, *, out: Tensor) -> Tensor:
        return torch.mul(x, 2, out=out)

    op = ops.custom("double_out", double, mutates_args={"out"}, tags=torch.Tag.out, device_types=device.type)
    out = torch.empty_like(x)
    assert op(x, out=out) is out
    assert out.tolist() == [0, 2, 4, 6]
    with torch._subclasses.FakeTensorMode() as mode:
        fake, out = mode.from_tensor(x), mode.from_tensor(out)
        assert op(fake, out=out) is out


def test_C14_another_result_is_refused(ops, x, device):
    def copies(x: Tensor) -> Tensor:
        return x.clone()

    op = ops.custom("copies_", copies, mutates_args={"x"}, tags=torch.Tag.inplace, device_types=device.type)
    with pytest.raises(RuntimeError, match="must return its first argument"):
        op(x)


def test_C70_overloads_are_chosen_by_their_arguments(ops, x):
    ops.define("scaled(Tensor x) -> Tensor", PrivateUse1=lambda x: x + 1)
    assert ops.scaled(x).tolist() == [1, 2, 3, 4]  # the packet is cached before it grows
    ops.define("scaled.by(Tensor x, int n) -> Tensor", PrivateUse1=lambda x, n: x * n)
    ops.define("scaled.text(Tensor x, str n) -> Tensor", PrivateUse1=lambda x, n: x - len(n))
    assert ops.scaled(x).tolist() == [1, 2, 3, 4]
    assert ops.scaled(x, 3).tolist() == [0, 3, 6, 9]
    assert ops.scaled(x, "two").tolist() == [-3, -2, -1, 0]
    assert ops.scaled.by(x, 2).tolist() == [0, 2, 4, 6]
    assert ops.scaled.overloads() == ["default", "by", "text"]
    with pytest.raises(RuntimeError, match="scaled"):
        ops.scaled(x, [1])
