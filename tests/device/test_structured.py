"""A kernel over ATen's structured meta: one implementation, three forms, outputs of every kind, a clear way out."""

import pytest
import torch

A = torch.arange(12, dtype=torch.float32).view(3, 4)

# The forms of one kernel; each gets a tensor and gives the result.
FORMS = {
    "functional": lambda x: torch.add(x, x, alpha=2),
    "method": lambda x: x.add(x, alpha=2),
    "out": lambda x: torch.add(x, x, alpha=2, out=torch.empty_like(x)),
    "in-place": lambda x: x.clone().add_(x, alpha=2),
}


@pytest.mark.requires("host_exec")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_E21_one_kernel_gives_every_form(device, kernel_calls, form):
    x = A.to(device)
    before = kernel_calls("add.Tensor")
    found = form(x)
    assert kernel_calls("add.Tensor") == before + 1
    assert torch.equal(found.cpu(), 3 * A)


def test_E21_every_form_records_its_gradient(device):
    x = A.to(device).requires_grad_()
    y = torch.add(x, x.detach(), alpha=2).clone().add_(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.cpu().unique().tolist() == [2]


OUTPUTS = {
    "empty": lambda d: torch.empty(0, device=d),
    "right": lambda d: torch.empty(4, 3, device=d),
    "transposed": lambda d: torch.empty(3, 4, device=d).t(),
    "gaps": lambda d: torch.zeros(4, 6, device=d)[:, ::2],
    "offset": lambda d: torch.zeros(6, 3, device=d)[2:],
    "another dtype": lambda d: torch.empty(4, 3, dtype=torch.float64, device=d),
}


@pytest.mark.parametrize("make", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_E22_outputs_are_resized_or_keep_their_strides(device, make):
    expected, found = make("cpu"), make(device)
    torch.add(A.t(), 1, out=expected)
    assert torch.add(A.to(device).t(), 1, out=found) is found
    assert (found.stride(), found.dtype, found.storage_offset()) == (
        expected.stride(),
        expected.dtype,
        expected.storage_offset(),
    )
    assert torch.equal(found.cpu(), expected)


def test_E22_the_rest_of_a_strided_output_is_untouched(device):
    base = torch.full((4, 6), -1.0, device=device)
    torch.add(A.to(device).t(), 1, out=base[:, ::2])
    assert (base[:, 1::2] == -1).all().item()


def test_E22_outputs_that_overlap_are_refused(device):
    x = torch.zeros(4, device=device)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.add(x[:3], 1, out=x[1:])
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.add(x[:1], 1, out=x[:1].expand(3))


@pytest.mark.requires("host_exec")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16], ids=str)
def test_E23_a_dtype_that_no_kernel_takes_is_left_to_the_fallback_or_refused(device, kernel_calls, dtype):
    x = torch.ones(3, dtype=dtype)
    before = kernel_calls("add.Tensor")
    try:
        expected = x + x
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error), match=r"not implemented|not supported"):
            x.to(device) + x.to(device)
    else:
        assert torch.equal((x.to(device) + x.to(device)).cpu(), expected)
    assert kernel_calls("add.Tensor") == before


@pytest.mark.requires("host_exec")
def test_E23_what_no_kernel_takes_is_named_where_the_fallback_is_off(device):
    from torch_backplane import fallback

    x = torch.ones(3, dtype=torch.complex64, device=device)
    with fallback.policy("error"), pytest.raises(NotImplementedError, match=r"add.*ComplexFloat"):
        x + x
