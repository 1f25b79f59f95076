"""What compiled kernels do not write, and what they take from the host: the words and values are the CPU's."""

import pytest
import torch


def repeated(device, *shape, dtype=torch.float32):
    """All its elements are one; the storage is as large as what a kernel would write that ignores strides."""
    return torch.ones(64, dtype=dtype, device=device)[:1].expand(shape)


# Each gets a device, and has an output that overlaps.
REPEATED = {
    "mm": lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(3, 4, device=d), out=repeated(d, 2, 4)),
    "arange": lambda d: torch.arange(5, out=repeated(d, 5)),
    "linspace": lambda d: torch.linspace(0, 1, 5, out=repeated(d, 5)),
    "logspace": lambda d: torch.logspace(0, 1, 5, out=repeated(d, 5)),
    "complex": lambda d: torch.complex(
        torch.ones(3, device=d), torch.ones(3, device=d), out=repeated(d, 3, dtype=torch.complex64)
    ),
    "frexp": lambda d: torch.frexp(
        torch.ones(3, device=d), out=(repeated(d, 3), torch.empty(3, dtype=torch.int32, device=d))
    ),
    "avg_pool2d": lambda d: torch._C._nn.avg_pool2d(torch.ones(1, 1, 4, 4, device=d), 2, out=repeated(d, 1, 1, 2, 2)),
    "nan_to_num_": lambda d: repeated(d, 3).nan_to_num_(),
    "rrelu_": lambda d: torch.rrelu_(repeated(d, 3)),
}


@pytest.mark.parametrize("call", REPEATED.values(), ids=REPEATED.keys())
def test_E22_elements_that_share_a_place_are_not_written(device, call):
    with pytest.raises(RuntimeError, match="unsupported operation: more than one element"):
        call(device)


def test_E22_arange_warns_of_an_output_of_another_length(device):
    with pytest.warns(
        UserWarning, match=r"out tensor of shape \[2\] is 2 which does not match the computed number of elements 5"
    ):
        assert torch.arange(0, 5, out=torch.zeros(2, device=device)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("on_host", [(0,), (1, 2), (0, 1), (0, 2)], ids=str)
def test_where_takes_any_scalars_of_the_host(device, on_host):
    operands = torch.tensor(True), torch.tensor(2.5), torch.tensor(3)
    mixed = [x if i in on_host else x.expand(4).to(device) for i, x in enumerate(operands)]
    found = torch.where(*mixed)
    assert (found.device.type, found.dtype, found.tolist()) == (device.type, torch.float32, [2.5] * 4)
    out = torch.empty(0, device=device)
    assert torch.where(*mixed, out=out).tolist() == [2.5] * 4
