"""Operators that write or view their arguments, declared and undeclared, on the device."""

import warnings

import pytest
import torch
from torch import Tensor

NAMESPACE = "bp_test_mutation"


@pytest.fixture
def x(device):
    return torch.arange(4.0, device=device)


def test_C71_declared_mutation_raises_the_version_counter_and_changes_the_data(ops, device):
    def adds(one: Tensor, n: int, maybe: Tensor | None, several: list[Tensor], read: Tensor) -> None:
        for tensor in (one, maybe, *several):
            if tensor is not None:
                tensor.data.add_(n)  # does not change the counter, as a vendor's kernel

    op = ops.custom("adds", adds, mutates_args=["one", "maybe", "several"], device_types=device.type)
    one, maybe, first, second, read = (torch.zeros(2, device=device) for _ in range(5))

    def versions():
        return [tensor._version for tensor in (one, maybe, first, second, read)]

    before = versions()
    op(one, 5, maybe, [first, second], read)
    assert [after > was for after, was in zip(versions(), before, strict=True)] == [True, True, True, True, False]
    assert [tensor.tolist() for tensor in (one, maybe, first, second, read)] == [[5.0, 5.0]] * 4 + [[0.0, 0.0]]
    before = versions()
    op(one, 1, None, [], read)
    assert [after > was for after, was in zip(versions(), before, strict=True)] == [True, False, False, False, False]


def test_C71_a_tensor_that_backward_needs_may_not_be_written(ops, x, device):
    def zeroes(x: Tensor) -> None:
        x.data.zero_()

    op = ops.custom("zeroes", zeroes, mutates_args=["x"], device_types=device.type)
    weight = torch.ones(4, device=device, requires_grad=True)
    y = (weight * x).sum()
    op(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize(
    ("schema", "kernel"),
    [
        ("(Tensor x) -> Tensor", lambda x: x),
        ("(Tensor x) -> Tensor", lambda x: x.view(-1)),
        ("(Tensor x) -> Tensor", lambda x: x[2:]),
        ("(Tensor x) -> Tensor[]", lambda x: [x.clone(), x[1:]]),
        ("(Tensor x) -> (Tensor, Tensor)", lambda x: (x.clone(),) * 2),
    ],
    ids=["input", "view", "part", "list", "one result twice"],
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_C72_returning_what_aliases_is_refused(ops, x, device, schema, kernel, requires_grad):
    op = ops.custom("aliases", kernel, schema=schema, device_types=device.type)
    with pytest.raises(RuntimeError, match="must not also be an input to this custom operator"):
        op(x.requires_grad_(requires_grad))


def test_C73_a_view_operator_stays_a_tracked_view(ops, x, device):
    op = ops.custom("tail", lambda x: x[1:], schema="(Tensor(a) x) -> Tensor(a)", device_types=device.type)
    view = op(x)
    assert view._is_view()
    assert view._base is x
    assert view.storage_offset() == 1
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    version = x._version
    view.add_(10)
    assert x.tolist() == [0, 11, 12, 13]
    assert x._version == view._version > version
    op = ops.custom(
        "halves", lambda x: list(x.split(2)), schema="(Tensor(a) x) -> Tensor(a)[]", device_types=device.type
    )
    assert [part._is_view() for part in op(x)] == [True, True]


def test_C75_without_a_rule_vmap_loops_and_warns(ops, device, capfd):
    shapes = []

    def product(x: Tensor, y: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        return x * y

    op = ops.custom("product", product, device_types=device.type)
    batch, y = torch.arange(6.0, device=device).view(2, 3), torch.arange(3.0, device=device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = torch.vmap(op, in_dims=(0, None))(batch, y)
    assert torch.equal(result, batch * y)
    assert shapes == [(3,), (3,)]
    warned = capfd.readouterr().err + "".join(str(w.message) for w in caught)  # until torch 2.13, and since
    assert "not yet implemented the batching rule for bp_test_mutation::product" in warned
