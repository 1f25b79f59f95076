"""How torch's dispatcher finds the device's kernel or the fallback."""

import pytest
import torch
from torch._C import DispatchKey
from torch._ops import resolve_key

from torch_backplane import fallback

OP = torch.ops.aten.erfinv  # an operator that no backend of the tests has a kernel for


@pytest.fixture
def x(device):
    return torch.linspace(-0.9, 0.9, 6).to(device)


NAMESPACE = "bp_test_dispatch"


def test_B09_a_schema_that_returns_a_view_is_not_computed_on_the_cpu(ops, x):
    seen = ops.define("seen(Tensor(a) x) -> Tensor(a)", CPU=lambda x: x[1:])
    assert seen.is_view
    with pytest.raises(NotImplementedError, match="bp_test_dispatch::seen is a view operator"):
        seen(x)
    copied = ops.define("copied(Tensor x) -> Tensor", CPU=lambda x: x[1:].clone())
    assert not copied.is_view
    assert torch.equal(copied(x).cpu(), x.cpu()[1:])


def test_B09_what_a_schema_says_is_written_is_written_back(ops, x):
    doubled_ = ops.define("doubled_(Tensor(a!) x) -> Tensor(a!)", CPU=lambda x: x.mul_(2))
    all_ = ops.define("doubled_all_(Tensor(a!)[] xs) -> ()", CPU=lambda xs: [x.mul_(2) for x in xs] and None)
    read = ops.define("read(Tensor x) -> Tensor", CPU=lambda x: x.mul(2))
    before, y, z = x.cpu(), x.clone(), x.clone()
    assert doubled_(y) is y
    all_([z, z[:0]])
    read(x)
    for found, expected in ((y, before * 2), (z, before * 2), (x, before)):
        assert torch.equal(found.cpu(), expected)


def test_B13_decompose_runs_a_composite_kernel_on_the_device(x):
    square = x.view(2, 3)
    result = torch.ops.aten.matmul.default.decompose(square, square.t())
    assert result.device == x.device
    torch.testing.assert_close(result.cpu(), square.cpu() @ square.cpu().t())
    assert torch.ops.aten.sin.default.decompose(x) is NotImplemented


def test_B14_the_devices_kernel_is_found_in_torchs_order():
    aten, key = torch.ops.aten, DispatchKey.PrivateUse1
    assert resolve_key(aten.as_strided.default, key) == key  # its own kernel
    assert resolve_key(OP.default, key) == DispatchKey.CompositeExplicitAutogradNonFunctional
    assert resolve_key(aten.ones.default, key) == DispatchKey.CompositeExplicitAutograd
    assert resolve_key(aten.selu.default, key) == DispatchKey.CompositeImplicitAutograd
    assert resolve_key(OP.out, key) == key  # the fallback: the key itself, without a kernel
    assert not OP.out.has_kernel_for_dispatch_key(key)


def test_B14_a_kernel_of_the_device_goes_before_a_composite_one(x):
    key = DispatchKey.PrivateUse1
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("ones_like", lambda self, **options: self.clone(), "PrivateUse1")
        assert resolve_key(torch.ops.aten.ones_like.default, key) == key
        assert torch.equal(torch.ones_like(x), x)
    assert resolve_key(torch.ops.aten.ones_like.default, key) == DispatchKey.CompositeExplicitAutograd
    assert torch.ones_like(x).cpu().tolist() == [1.0] * 6


@pytest.mark.once
def test_B14_without_a_fallback_the_order_ends_in_an_error(printed):
    code = """
from torch._ops import resolve_key
x, OP = torch.ones(2, device=d), torch.ops.aten.erfinv
try:
    resolve_key(OP.out, torch._C.DispatchKey.PrivateUse1)
except NotImplementedError as error:
    print("not resolved")
try:
    x.erfinv()
except NotImplementedError as error:
    print("erfinv" in str(error))
print(torch.ones_like(x).tolist())
"""
    assert printed(code, FALLBACK="none").splitlines() == ["not resolved", "True", "[1.0, 1.0]"]


@pytest.mark.once
def test_D07_a_python_function_can_be_the_fallback_of_the_device_and_receive_its_keys(printed):
    code = """
x = torch.ones(2, device=d)
seen = []
def answer(op, *args, **kwargs):
    seen.append((op.name(), args[1:], kwargs))
    return args[0]

library = torch.library.Library("_", "IMPL")
library.fallback(answer, "PrivateUse1")
print(x.histc(4, 1, 2).tolist(), seen)
seen.clear()
x.erfinv()
print(*(name for name, args, kwargs in seen))
library._destroy()
keys = []
def fallback(keyset, op, *args, **kwargs):
    keys.append(keyset.has(torch._C.DispatchKey.PrivateUse1))
    return args[0].clone()

library = torch.library.Library("_", "IMPL")
library.fallback(fallback, "PrivateUse1", with_keyset=True)
print(torch.ops.aten.histc(x, 2).shape, keys)
"""
    assert printed(code, FALLBACK="none").splitlines() == [
        "[1.0, 1.0] [('aten::histc', (4, 1, 2), {})]",
        "aten::erfinv.out",
        "torch.Size([2]) [True]",
    ]


def test_D08_a_second_fallback_is_refused():
    with torch.library._scoped_library("_", "IMPL") as library, pytest.raises(RuntimeError, match="fallback"):
        library.fallback(lambda op, *args, **kwargs: None, "PrivateUse1")


def test_D08_the_one_fallback_can_be_switched_and_hooked(x):
    assert fallback.is_registered()
    with fallback.policy("error"), pytest.raises(NotImplementedError, match="erfinv"):
        x.erfinv()
    seen = []

    def hook(op, args, kwargs):
        seen.append(op)
        return NotImplemented

    with fallback.hook(hook):
        torch.testing.assert_close(x.erfinv().cpu(), x.cpu().erfinv())
    x.erfinv()
    assert seen == [OP.out]
