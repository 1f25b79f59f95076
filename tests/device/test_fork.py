"""Fork: safe until the first use of a device; after it, a child that uses one is told so (E39)."""

import pytest

pytestmark = pytest.mark.once

CHILD = """
import os, sys, torch
m = torch.{name}
{before}
pid = os.fork()
if pid == 0:
    try:
        torch.manual_seed(0)
        print(m._is_in_bad_fork(), torch.ones(2, device="{name}").tolist(), flush=True)
    except RuntimeError as error:
        print(m._is_in_bad_fork(), "spawn" in str(error), flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
print("parent", status, torch.ones(2, device="{name}").tolist(), flush=True)
"""


def test_E39_a_child_of_a_parent_that_only_asked_can_use_the_device(run_in_process, name):
    code = CHILD.format(name=name, before="m.is_available(), m.get_device_properties(0), torch.manual_seed(1)")
    assert run_in_process(code).stdout == "False [1.0, 1.0]\nparent 0 [1.0, 1.0]\n"


def test_a_child_of_a_parent_that_used_the_device_is_refused(run_in_process, name):
    code = CHILD.format(name=name, before=f"x = torch.ones(1, device='{name}')")
    assert run_in_process(code).stdout == "True True\nparent 0 [1.0, 1.0]\n"


def test_tensors_of_the_parent_die_quietly_in_a_child(run_in_process, name):
    code = f"""
        import os, torch, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of any fork where there are threads
        x = torch.ones(1000, device="{name}")
        pid = os.fork()
        if pid == 0:
            del x
            os._exit(0)
        print(os.waitpid(pid, 0)[1], x.sum().item())
    """
    done = run_in_process(code)
    assert done.stdout.strip() == "0 1000.0"
    assert done.stderr == ""


def test_worker_processes_of_a_dataloader(run_in_process, name):
    code = f"""
        import torch
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        torch.ones(1, device="{name}")
        total = sum(batch.to("{name}", non_blocking=True).sum().item()
                    for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, pin_memory=True))
        print(total)
    """
    assert run_in_process(code).stdout.strip() == "28.0"
