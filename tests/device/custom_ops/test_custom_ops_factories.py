"""torch_backplane.ops: operators that make tensors, whose kernel a ``device`` chooses. A12 and A13."""

import pytest
import torch
from torch import Tensor

from torch_backplane import ops

pytestmark = pytest.mark.once


def positional(n: int, device: torch.device) -> Tensor:
    return torch.ones(n, device=device)


def positional_with_default(n: int, device: torch.device | None = None) -> Tensor:
    return torch.ones(n, device=device)


def keyword(n: int, *, device: torch.device) -> Tensor:
    return torch.ones(n, device=device)


def keyword_with_default(n: int, *, device: torch.device | None = None) -> Tensor:
    return torch.ones(n, device=device)


@pytest.mark.parametrize("function", [positional, positional_with_default, keyword, keyword_with_default])
def test_A12_A13_a_factory_reaches_the_devices_kernel_and_the_device_may_be_keyword_only_or_left_out(
    made, device, function
):
    op = made(ops.custom_op("bp_ops::a13", function, mutates_args=()))
    op.reference(lambda *args, **kwargs: torch.zeros(args[0]))
    op.register_fake(function)
    assert op(2, device=device).tolist() == [1, 1]
    for asked in (device.type, torch.device(device.type, 0)):
        assert op(2, device=asked).device == device
    assert op(2, device="cpu").tolist() == [0, 0]
    if "default" in function.__name__:
        assert op(2).tolist() == [0, 0]  # torch's default device
    if function is keyword_with_default:
        with torch.device(device.type):
            assert op(2).tolist() == [1, 1]
    with torch._subclasses.FakeTensorMode():
        assert op(2, device=device).device == device
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda: op(2, device=device) + 1, tracing_mode="fake")()
    assert traced().tolist() == [2, 2]
    assert traced().device == device


def test_A13_under_compilation(made, device):
    op = made(ops.custom_op("bp_ops::a13", keyword_with_default, mutates_args=()))
    op.register_fake(keyword_with_default)
    compiled = torch.compile(lambda: op(3, device=device) * 2, backend="aot_eager", fullgraph=True)
    assert compiled().tolist() == [2, 2, 2]


def test_a_factory_has_a_default_kernel_and_one_without_a_device_is_refused(made, device):
    op = made(ops.custom_op("bp_ops::made", keyword, mutates_args=(), device_types="default"))
    assert op(2, device=device).tolist() == [1, 1]
    op.register_kernel(None, lambda n, *, device: torch.zeros(n, device=device))
    assert op(2, device=device).tolist() == [0, 0]
    assert op(2, device="cpu").tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"`device: torch.device` must choose the kernel"):
        ops.custom_op("bp_ops::chooses_nothing", lambda_without_tensors, mutates_args=())
    assert "bp_ops::chooses_nothing" not in torch._C._dispatch_get_all_op_names()


def lambda_without_tensors(n: int) -> Tensor:
    return torch.ones(n)
