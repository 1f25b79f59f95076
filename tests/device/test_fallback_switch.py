"""torch_backplane.fallback: the switch and the counters (E33)."""

import pytest
import torch

from torch_backplane import fallback

OP = "aten::erfinv"  # an operator that no backend of the tests has a kernel for


def run(device):
    return torch.tensor([0.5], device=device).erfinv()


@pytest.fixture(autouse=True)
def general_policy_kept():
    before = fallback.get_policy()
    yield
    fallback.policy(before)
    fallback.policy(before, OP).__exit__()


def test_E33_calls_are_counted(device):
    fallback.reset_calls()
    run(device)
    run(device)
    assert sum(count for op, count in fallback.calls().items() if op.split(".")[0] == OP) == 2
    assert OP in fallback.report()
    fallback.reset_calls()
    assert fallback.calls() == {}
    assert fallback.is_registered()


def test_E33_error_raises_naming_the_operator_and_the_context_restores(device):
    before = fallback.get_policy()
    with fallback.policy("error"):
        assert fallback.get_policy() == "error"
        with pytest.raises(NotImplementedError, match="erfinv"):
            run(device)
    assert fallback.get_policy() == before
    run(device)


def test_E33_one_operator_can_be_switched(device):
    with fallback.policy("error", OP):
        assert fallback.get_policy(OP) == "error"
        with pytest.raises(NotImplementedError, match="erfinv"):
            run(device)
        torch.tensor([0.5], device=device).digamma()
    with fallback.policy("error"), fallback.policy("cpu", OP):
        run(device)
    assert fallback.get_policy(OP) == fallback.get_policy()


def test_a_policy_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="cpu"):
        fallback.policy("perhaps")
