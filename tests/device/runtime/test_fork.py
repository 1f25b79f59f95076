"""Fork: safe until the first use of a device; after it, a child that uses one raises (E39)."""

import pytest

pytestmark = pytest.mark.once

CHILD = """
import os, sys, torch, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of any fork where there are threads
m = torch.{name}
{before}
pid = os.fork()
if pid == 0:
    globals().pop("x", None)
    try:
        torch.manual_seed(0)
        print(m._is_in_bad_fork(), torch.ones(2, device="{name}").tolist(), flush=True)
    except RuntimeError as error:
        print(m._is_in_bad_fork(), "spawn" in str(error), flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
print("parent", status, torch.ones(2, device="{name}").tolist(), flush=True)
"""


def test_E39_a_child_of_a_parent_that_only_made_queries_can_use_the_device(run_in_process, name):
    code = CHILD.format(name=name, before="m.is_available(), m.get_device_properties(0), torch.manual_seed(1)")
    assert run_in_process(code).stdout == "False [1.0, 1.0]\nparent 0 [1.0, 1.0]\n"


def test_a_child_of_a_parent_that_used_the_device_is_refused(run_in_process, name):
    """Tensors of the parent may be deleted in the child."""
    done = run_in_process(CHILD.format(name=name, before=f"x = torch.ones(1000, device='{name}')"))
    assert (done.stdout, done.stderr) == ("True True\nparent 0 [1.0, 1.0]\n", "")
