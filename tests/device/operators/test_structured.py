"""ATen's structured operators: one implementation, three forms, outputs of every kind, refused dtypes."""

import itertools

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from torch_backplane import fallback

A = torch.arange(12, dtype=torch.float32).view(3, 4)

# The forms of one kernel.
FORMS = {
    "functional": lambda x: torch.add(x, x, alpha=2),
    "method": lambda x: x.add(x, alpha=2),
    "out": lambda x: torch.add(x, x, alpha=2, out=torch.empty_like(x)),
    "in-place": lambda x: x.clone().add_(x, alpha=2),
}


@pytest.mark.kernels
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_E21_one_kernel_gives_every_form(device, kernel_calls, form):
    x = A.to(device)
    before = kernel_calls("portable/add.Tensor")
    found = form(x)
    assert kernel_calls("portable/add.Tensor") == before + 1
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
    "another size": lambda d: torch.empty(2, device=d),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("make", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_E22_outputs_are_resized_or_keep_their_strides(device, make):
    expected, found = make("cpu"), make(device)
    torch.add(A.t(), 1, out=expected)
    assert torch.add(A.to(device).t(), 1, out=found) is found
    for trait in (torch.Tensor.stride, torch.Tensor.storage_offset):
        assert trait(found) == trait(expected)
    assert found.dtype == expected.dtype
    assert torch.equal(found.cpu(), expected)


def test_E22_the_rest_of_a_strided_output_is_untouched_and_overlaps_are_refused(device):
    base = torch.full((4, 6), -1.0, device=device)
    torch.add(A.to(device).t(), 1, out=base[:, ::2])
    assert (base[:, 1::2] == -1).all().item()
    x = torch.zeros(4, device=device)
    for out in (x[1:], x[:1].expand(3)):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            torch.add(x[:3], 1, out=out)


def repeated(device, *shape):
    """Its elements are the same one; a kernel that ignored strides would write within the storage."""
    return torch.ones(64, device=device)[:1].expand(shape)


REPEATED = {
    "mm": lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(3, 4, device=d), out=repeated(d, 2, 4)),
    "addmm_": lambda d: repeated(d, 2, 4).addmm_(torch.ones(2, 3, device=d), torch.ones(3, 4, device=d)),
}


@pytest.mark.parametrize("call", REPEATED.values(), ids=REPEATED.keys())
def test_E22_other_kernels_than_elementwise_ones_refuse_them_before_they_are_queued(device, device_module, call):
    with pytest.raises(RuntimeError, match="unsupported operation: more than one element"):
        call(device)
    device_module.synchronize()
    assert torch.ones(3, device=device).sum().item() == 3


@pytest.mark.long
@pytest.mark.parametrize(
    "name", sorted({op.full_name for op in op_db if op.supports_out and torch.float32 in op.dtypes})
)
def test_E22_every_operator_refuses_those_that_the_cpu_refuses(device, device_module, name):
    def failure(sample, results, on):
        def moved(value):
            return value.to(on) if isinstance(value, torch.Tensor) else on if str(value) == "cpu" else value

        input, args, kwargs = tree_map(moved, (sample.input, sample.args, sample.kwargs))
        outs = [
            torch.empty(1 << 16, dtype=result.dtype, device=on)[:1].expand(result.shape)
            if result.numel() > 1
            else moved(result)
            for result in results
        ]
        try:
            op(input, *args, **kwargs, out=outs[0] if len(outs) == 1 else tuple(outs))
            device_module.synchronize()
        except RuntimeError as error:
            return type(error), str(error).split(".")[0]
        return None

    (op,) = (op for op in op_db if op.full_name == name)
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), 6):
        computed = op(sample.input, *sample.args, **sample.kwargs)
        results = computed if isinstance(computed, (tuple, list)) else [computed]
        if all(isinstance(result, torch.Tensor) for result in results):
            expected = failure(sample, results, "cpu")
            if expected is not None:  # the CPU's BLAS writes to outputs that overlap
                assert failure(sample, results, device) == expected


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [torch.complex128, torch.float8_e4m3fn, torch.uint16], ids=str)
def test_E23_a_dtype_that_no_kernel_supports_is_left_to_the_fallback_or_refused(device, kernel_calls, dtype):
    x = torch.ones(3, dtype=dtype)
    before = kernel_calls("portable/add.Tensor")
    try:
        expected = x + x
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error), match=r"not implemented|not supported"):
            x.to(device) + x.to(device)
    else:
        assert torch.equal((x.to(device) + x.to(device)).cpu(), expected)
    assert kernel_calls("portable/add.Tensor") == before


@pytest.mark.kernels
def test_E23_a_dtype_that_no_kernel_supports_is_named_if_the_fallback_is_off(device):
    x = torch.ones(3, dtype=torch.complex128, device=device)
    with fallback.policy("error"), pytest.raises(NotImplementedError, match=r"add.*ComplexDouble"):
        x + x
