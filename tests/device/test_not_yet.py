"""What the core does not have yet answers with one sentence, and stands in the way of nothing else."""

from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.once

MINIMAL = Path(__file__).resolve().parents[2] / "build" / "demo" / "minimal" / "libminimal_driver.so"


REFUSED = {
    "compiler=none": "no C compiler on this machine: looked for nothing, since the option is compiler=none",
    "minimal": "its driver compiles no kernels here (bp.compiler and bp.module",
}


@pytest.mark.parametrize("driver", REFUSED)
def test_compile_without_a_compiler_says_what_there_is_instead(run_in_process, name, driver):
    """The CPU's code is generated all the same, and the other backends run."""
    code = f"""
    import torch
    def f(x):
        return (x + 1).sin()
    x = torch.ones(3, device="{name}")
    for backend in ("eager", "aot_eager"):
        assert torch.equal(torch.compile(f, backend=backend)(x).cpu(), f(x).cpu())
    for dynamic in (False, True):
        torch._dynamo.reset()
        try:
            torch.compile(f, dynamic=dynamic)(x)
        except Exception as error:
            print(" ".join(str(error).splitlines()[:2]))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(f)(torch.ones(3)), f(torch.ones(3)))
    """
    if driver == "minimal":
        done = run_in_process(code, env={"MYDEVICE_DRIVER": str(MINIMAL), "MYDEVICE_SHIMS": None})
    else:
        done = run_in_process(code, options=driver)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert REFUSED[driver] in line
        assert 'backend="aot_eager"' in line


def test_a_vendors_own_registration_with_inductor_takes_its_place(run_in_process, name):
    code = f"""
    import torch
    from torch._inductor.codegen import common
    class Mine(Exception): pass
    def refuse(*args): raise Mine("the vendor's")
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    wrapper = type("W", (PythonWrapperCodegen,), dict(create=staticmethod(refuse)))
    common.register_backend_for_device("{name}", refuse, wrapper)
    common.register_device_op_overrides("{name}", common.DeviceOpOverrides())
    try:
        torch.compile(lambda x: x + 1)(torch.ones(3, device="{name}"))
    except Exception as error:
        print(str(error).splitlines()[0])
    """
    assert "the vendor's" in run_in_process(code).stdout


GROUP = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
os.environ.update(MASTER_ADDR="127.0.0.1", TORCH_NCCL_DUMP_ON_TIMEOUT="0")

def work(rank, store):
    dist.init_process_group(rank=rank, world_size=2, store=dist.FileStore(store, 2))
    x = torch.full((3,), float(rank + 1))
    dist.all_reduce(x)
    dist.barrier()
    seen = [None, None]
    dist.all_gather_object(seen, rank)
    half = dist.new_group([0, 1])
    dist.all_reduce(x, group=half)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), float(rank))).sum().backward()
    assert x.tolist() == [6.0] * 3 and seen == [0, 1]
    assert model.module.weight.grad.tolist() == [[0.5, 0.5]]
    try:
        dist.all_reduce(torch.ones(3, device="{name}"))
    except RuntimeError as error:
        assert "No backend type associated with device type {name}" in str(error), error
    else:
        raise AssertionError("accepted")
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (os.environ["STORE"],), 2)
    print("fine")
"""


def test_a_group_without_a_backend_is_one_of_the_cpu(name, tmp_path):
    import os
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(GROUP.format(name=name))
    env = {**os.environ, "STORE": str(tmp_path / "store"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["fine"], done.stderr


def test_a_backend_for_the_device_takes_the_place_of_the_cpus(run_in_process, name):
    code = f"""
    import os
    import torch
    import torch.distributed as dist
    made = []
    def make(store, rank, size, timeout):
        made.append(size)
        return dist.ProcessGroup(store, rank, size)
    dist.Backend.register_backend("vendor", make, devices=["{name}"])
    before = dist.Backend.default_device_backend_map["{name}"]
    dist.Backend.default_device_backend_map["{name}"] = "vendor"
    dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())
    print(made, before)
    """
    assert run_in_process(code).stdout.split() == ["[1]", "backplane_cpu"]


def test_no_name_is_left_in_the_device_module(device_module):
    """Inductor looks them up, registers the device by it, and goes on with what is registered."""
    assert not {"Scheduling", "PythonWrapperCodegen"} & set(dir(device_module))
    with pytest.raises(AttributeError, match="Scheduling is registered with Inductor"):
        _ = device_module.Scheduling
    from torch._inductor.codegen import common

    assert torch._C._get_privateuse1_backend_name() in common.device_codegens
