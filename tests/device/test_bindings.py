"""``_C``, the native module: how its functions take arguments and raise."""

import gc
import sys
import warnings
import weakref

import pytest
import torch

from torch_backplane import _backend, fallback

pytestmark = pytest.mark.once


def test_a_wrong_number_of_arguments(device):
    with pytest.raises(TypeError, match=r"^set_device\(\) takes 1 argument\(s\), not 0"):
        _backend.C.set_device()
    with pytest.raises(TypeError, match=r"^current_device\(\) takes 0 argument\(s\), not 1"):
        _backend.C.current_device(0)
    with pytest.raises(TypeError, match="keyword"):
        _backend.C.set_device(device=0)


@pytest.mark.parametrize("wrong", ["0", 0.5, [], None])
def test_a_wrong_type_names_the_argument(device, wrong):
    with pytest.raises(
        TypeError, match=rf"^argument 2 of stream_priority\(\) cannot be of type {type(wrong).__name__}"
    ):
        _backend.C.stream_priority(0, wrong)


@pytest.mark.parametrize(
    ("function", "arguments", "wrong"),
    [
        ("block_size", (-1,), "int"),  # is no address
        ("end_pool", (0, (1,)), "tuple"),  # is no pair
        ("set_fallback_op_policy", ("add.Tensor", 3), "int"),
        ("record_history", (True, 0, False, 10, True, [1]), "list"),
        ("host_view", (1,), "int"),
        ("run_fallback", ("aten::add", "Tensor", [], {}), "list"),
        ("event_device", ("event",), "str"),
    ],
)
def test_every_kind_of_argument_is_checked(device, function, arguments, wrong):
    with pytest.raises(TypeError, match=rf"{function}\(\) cannot be of type {wrong}"):
        getattr(_backend.C, function)(*arguments)


def test_errors_are_pytorchs(device):
    with pytest.raises(RuntimeError, match="invalid device index 99"):
        _backend.C.set_device(99)
    with pytest.raises(ValueError, match="a shared storage has 5 parts, not 1"):
        _backend.C.ipc_release((1,))


def test_a_capsule_of_something_else_is_no_event(device):
    with pytest.raises(TypeError, match="the capsule holds no event"):
        _backend.C.event_device(torch.ones(1).__dlpack__())


def test_warnings_are_pythons_and_may_be_errors(device):
    def warn():
        with fallback.policy("warn"):
            return _backend.C.run_fallback("aten::frac", "", (torch.tensor([1.5], device=device),), {})

    with pytest.warns(UserWarning, match="the CPU computes it"):
        assert warn().tolist() == [0.5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="the CPU computes it"):
            warn()


def test_arguments_are_released(device):
    class Named(str):
        pass

    name = Named("add.Tensor")
    gone = weakref.ref(name)
    references = sys.getrefcount(name)
    _backend.C.kernel_calls(name)
    with pytest.raises(TypeError):
        _backend.C.stream_priority(0, name)
    gc.collect()
    assert sys.getrefcount(name) == references
    del name
    assert gone() is None
