"""A process that has run a backward ends with status 0, whatever its last statement was."""

import pytest

pytestmark = pytest.mark.once  # it is about threads of the host

# The interpreter keeps the GIL, so that autograd's threads are still running when it ends.
SCRIPT = """
import sys, torch
sys.setswitchinterval(100)
device = torch.device("{name}", torch.{name}.device_count() - 1)
x = torch.ones(3, device=device, requires_grad=True)
{last}
"""


@pytest.mark.long_after_first
@pytest.mark.parametrize(
    "last",
    [
        "(x * 2).sum().backward()",
        pytest.param(
            "(g,) = torch.autograd.grad((x * x).sum(), x, create_graph=True); g.sum().backward()",
            marks=pytest.mark.long,
        ),
        pytest.param("x.register_hook(lambda g: g * 2); x.sum().backward()", marks=pytest.mark.long),
        pytest.param("torch.ones(2, requires_grad=True).sum().backward()", marks=pytest.mark.long),
        "pass",
    ],
    ids=["backward", "double backward", "hook", "of the host", "none"],
)
def test_a_process_ends_well_after_a_backward(run_in_process, name, last):
    for _ in range(2):
        result = run_in_process(SCRIPT.format(name=name, last=last))
        assert (result.returncode, result.stderr) == (0, "")
