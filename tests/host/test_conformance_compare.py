"""What the conformance suites compare with, on the CPU alone: each difference is seen, and nothing else."""

import pytest
import torch

from backplane_tools.conformance.checker import Checker
from backplane_tools.conformance.randomness import check_random, distance
from backplane_tools.conformance.samples import Sample, lazy_conjugates, lazy_negatives, outs, with_gaps
from torch_backplane.testing.compare import (
    Difference,
    Rules,
    ValueDifference,
    compare,
    compare_observations,
    same_text,
)
from torch_backplane.testing.observe import observe, tensors
from torch_backplane.testing.transfer import Transfer

CPU = torch.device("cpu")


def differs(expected, actual, match, **rules):
    with pytest.raises(Difference, match=match):
        compare(expected, actual, CPU, Rules(**rules), "result")


def test_equal_values_are_equal():
    x = torch.tensor([[1.0, float("nan")], [float("inf"), -0.0]])
    compare((x, [2, "a", None]), (x.clone(), [2, "a", None]), CPU, Rules(), "result")
    compare(torch.ones(3, 1, 2), torch.ones(3, 1, 2).as_strided((3, 1, 2), (2, 7, 1)), CPU, Rules(), "result")


def test_each_difference_has_its_name():
    x = torch.rand(3, 2)
    differs(x, x + 1e-3, "6 of 6 values differ")
    differs(x, x.double(), "dtype")
    differs(x, x.to("meta"), "device")
    differs(x, x.reshape(2, 3), "shape")
    differs(x, x.t().contiguous().t(), "strides")
    differs(x, x.clone().requires_grad_(), "requires_grad")
    differs(x, x.to_sparse(), "layout")
    differs((x, x), (x,), "expected PyTreeSpec|TreeSpec")
    differs(1, 2, "expected 1, found 2")
    differs(torch.ones(2, dtype=torch.int64), torch.tensor([1, 2]), "1 of 2 values differ")
    differs(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]), "nan expected")


def test_near_is_much_less_than_torchs_tolerances():
    x = torch.rand(100) + 1
    compare(x, torch.nextafter(x, x + 1), CPU, Rules(), "result")
    differs(x, x * (1 + 4e-6), "values differ")
    compare(x, x * (1 + 4e-6), CPU, Rules(near=False), "result")
    differs(x, x * (1 + 8e-5), "values differ", near=False)
    compare(x.double(), x.double() * (1 + 2e-7), CPU, Rules(precision=torch.float32), "result")


def test_half_precision_may_cancel_as_on_the_cpu(monkeypatch):
    large = torch.tensor([100.0, 3.0], dtype=torch.bfloat16)

    def cancels(x):
        return x * 1.013 - x * 0.987  # 2.6 of 100: a bfloat16 has 101.5 and 98.5

    def check(by, x=large):
        checker.both(cancels, (x,), on_device=lambda x: cancels(x) + by)

    checker = Checker(CPU, 0)
    monkeypatch.setattr(checker, "_kernels", lambda *_: {"aten::mul", "aten::sub"})
    monkeypatch.setattr("backplane_tools.conformance.checker.largest", lambda _: 0.0)
    check(0.5)
    with pytest.raises(ValueDifference):
        check(1)
    with pytest.raises(ValueDifference):
        check(0.5, large.float())


def test_messages_are_compared_without_the_devices_name():
    device = torch.device("mydevice", 0)
    for text in ("on mydevice:0", "on mydevice", "on cpu", "on CPU:0", "on PrivateUse1"):
        assert same_text(text, device) == "on cpu"
    for text in (
        "a torch.mydevice.FloatTensor of Sparsemydevice, mydeviceFloatType",
        "a torch.FloatTensor of SparseCPU, CPUFloatType",
    ):
        assert same_text(text, device) == "a torch.FloatTensor of Sparsecpu, cpuFloatType"
    assert same_text("on mydevices", device) == "on mydevices"


def compare_calls(expected, found, *arguments, **rules):
    seen = [observe(function, arguments, CPU, 0) for function in (expected, found)]
    compare_observations(*seen, CPU, Rules(**rules))


def test_what_a_call_does_to_its_arguments_is_compared():
    x = torch.ones(3)
    compare_calls(torch.Tensor.add_, torch.Tensor.add_, x, x)
    assert torch.equal(x, torch.ones(3))
    with pytest.raises(Difference, match="argument 0 after the call"):
        compare_calls(lambda t: (t.add_(1), None)[1], lambda t: None, x)
    with pytest.raises(Difference, match="sharing"):
        compare_calls(lambda t: t.view(3), lambda t: t.clone(), x)
    with pytest.raises(Difference, match="sharing"):
        compare_calls(lambda t: t, lambda t: t.view(3), x)
    with pytest.raises(Difference, match="data_ptr"):
        compare_calls(lambda t: None, lambda t: (t.set_(t.clone()), None)[1], x)


def test_errors_and_warnings_are_compared():
    def fail(error):
        raise error

    compare_calls(lambda: fail(ValueError("a")), lambda: fail(ValueError("a")))
    for other in (ValueError("b"), TypeError("a")):
        with pytest.raises(Difference, match="instead of ValueError: a"):
            compare_calls(lambda: fail(ValueError("a")), lambda other=other: fail(other))
    with pytest.raises(Difference, match="accepted what the CPU refuses"):
        compare_calls(lambda: fail(ValueError("a")), lambda: None)
    with pytest.raises(Difference, match="raised ValueError"):
        compare_calls(lambda: None, lambda: fail(ValueError("a")))
    with pytest.raises(Difference, match="was resized"):
        compare_calls(
            lambda t, out: torch.add(t, t, out=out),
            lambda t, out: torch.add(t, t, out=out.resize_(3)),
            torch.ones(3),
            torch.empty(2),
        )


def test_a_transfer_keeps_sharing_gaps_and_lazy_bits():
    base = torch.arange(12).to(torch.complex64)
    view = base[1::2].reshape(2, 3).t()
    first, again, copy, lazy = Transfer("cpu")([view, view, base, torch._neg_view(view.conj())])
    assert first is again
    assert first.data_ptr() != view.data_ptr()
    assert (first.stride(), first.storage_offset()) == (view.stride(), view.storage_offset())
    assert lazy.is_conj()
    assert lazy.is_neg()
    copy.add_(1)
    assert torch.equal(first, view + 1)
    assert torch.equal(lazy, -(view + 1).conj())
    assert torch.equal(base, torch.arange(12).to(torch.complex64))


def test_variations_keep_the_values():
    sample = Sample(0, torch.randn(2, 3, dtype=torch.complex64), (torch.arange(3),), {"alpha": 2})
    for varied in (with_gaps(sample), lazy_conjugates(sample), lazy_negatives(sample)):
        for x, y in zip(tensors(sample.arguments), tensors(varied.arguments), strict=True):
            assert torch.equal(x, y)
    assert not with_gaps(sample).input.is_contiguous()
    assert lazy_conjugates(sample).input.is_conj()
    assert lazy_negatives(sample).input.is_neg()
    assert lazy_conjugates(Sample(0, torch.ones(2), (), {})) is None


def test_outs_have_the_forms_that_their_names_say():
    forms = dict(outs((torch.ones(2, 3),)))
    assert forms["empty out"][0].numel() == 0
    assert forms["out of the wrong size"][0].shape == (3, 4)
    assert forms["out with gaps"][0].stride() == (6, 2)
    assert forms["transposed out"][0].stride() == (1, 2)
    assert forms["int64 out"][0].dtype == torch.int64


def check_numbers(cpu, found):
    def draw(function):
        return lambda seed: observe(function, (), CPU, seed)

    check_random(draw(cpu), draw(found), CPU, distribution=True)


def test_random_numbers_are_reproducible_and_distributed_alike():
    check_numbers(lambda: torch.rand(20), lambda: torch.rand(21)[1:])
    with pytest.raises(Difference, match="distribution"):
        check_numbers(lambda: torch.rand(20), lambda: torch.rand(20) ** 3)
    with pytest.raises(Difference, match="seeds give the same numbers"):
        check_numbers(lambda: torch.rand(20), lambda: torch.full((20,), 0.5))
    generator = torch.Generator()
    with pytest.raises(Difference, match="two calls with one seed differ"):
        check_numbers(lambda: torch.rand(20), lambda: torch.rand(20, generator=generator))


def test_the_distance_is_the_largest_between_the_distribution_functions():
    a = torch.linspace(0, 1, 101, dtype=torch.float64)
    assert distance(a, a) == 0
    assert distance(a, a + 0.25) == pytest.approx(0.25, abs=0.02)
    assert distance(a, a + 2) > 0.98
