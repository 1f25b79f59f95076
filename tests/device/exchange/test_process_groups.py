"""Which backend of ``torch.distributed`` a process group gets. tests/distributed has what they do with tensors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backplane_tools.cli import doctor

pytestmark = pytest.mark.once

GROUP = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

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
    if torch.{name}.is_available():
        y = torch.full((3,), float(rank + 1), device="{name}")
        dist.all_reduce(y)
        assert y.tolist() == [3.0] * 3 and torch.{name}.distributed.engine()
    else:
        assert dist.get_backend_config() == "cpu:gloo"
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (os.environ["STORE"],), 2)
    print("fine")
"""


@pytest.mark.long
@pytest.mark.parametrize("visible", [None, ""])
def test_G05_a_group_without_a_backend_takes_tensors_of_the_cpu_and_of_the_device(name, tmp_path, visible):
    """On a machine without a device, those of the CPU."""
    script = tmp_path / "script.py"
    script.write_text(GROUP.format(name=name))
    env = {**os.environ, "STORE": str(tmp_path / "store"), "OMP_NUM_THREADS": "1"}
    if visible is not None:
        env[f"{name.upper()}_VISIBLE_DEVICES"] = visible
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["fine"], done.stderr


def test_G05_gloo_is_refused_for_the_device(printed, name):
    code = """
        import torch.distributed as dist
        try:
            dist.init_process_group(f"cpu:gloo,{d}:gloo", rank=0, world_size=1, store=dist.HashStore())
        except ValueError as error:
            print(error)
    """
    assert f'use "cpu:gloo,{name}:{name}ccl", or no backend argument' in printed(code)


def test_G05_data_parallel_names_what_to_use(device):
    with pytest.raises(NotImplementedError, match=r"use torch\.nn\.parallel\.DistributedDataParallel"):
        torch.nn.DataParallel(torch.nn.Linear(2, 2).to(device))


@pytest.mark.requires("collective")
def test_an_engine_that_the_driver_does_not_support_is_an_error_with_the_reason(printed):
    """The reason is that of choose_engine, which torch-backplane doctor prints."""
    code = """
        import os
        import torch.distributed as dist
        from torch_backplane import _backend, process_group
        print(*process_group.choose_engine())
        print([_backend.C.driver.group_refusal("peer")])
        for engine in ("native", "nccl"):
            os.environ[d.upper() + "_DIST"] = engine
            try:
                dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())
            except (ValueError, RuntimeError) as error:
                print(error)
        try:
            _backend.C.driver.group_refusal("coffee")
        except ValueError as error:
            print(error)
    """
    chosen, peer, native, nccl, coffee = printed(code, "collective=off", DIST=None).splitlines()
    why = "bp.collective is switched off by the option collective=off"
    assert chosen == f"staged by the host and Gloo, as the driver has no bp.collective: {why}"
    assert peer == "['']"
    assert f"has no collectives: {why}. Leave the variable unset" in native
    assert "native or staged" in nccl
    assert coffee == "there is no group coffee"


@pytest.mark.long_after_first
@pytest.mark.parametrize("engine", [pytest.param("native", marks=pytest.mark.requires("collective")), "staged"])
def test_the_version_is_that_of_the_engine(printed, engine):
    code = """
        import torch_backplane
        print(m.distributed.version())
        print("staged", torch_backplane.__version__)
        print("native", m.get_device_properties().driver_version)
    """
    version, *versions = printed(code, DIST=engine).splitlines()
    assert version == next(one for one in versions if one.startswith(engine))


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "state", "text"),
    [("staged", "ok", "{name}ccl, staged: {NAME}_DIST says so"), ("nccl", "warn", "none: {NAME}_DIST=nccl: it is")],
)
def test_doctor_reports_the_engine_of_a_group(backend_package, monkeypatch, name, engine, state, text):
    monkeypatch.setenv(f"{name.upper()}_DIST", engine)
    package = backend_package.__name__
    findings = {finding.what: finding for finding in doctor.check_backend(package)}
    finding = findings[f"{package} collectives"]
    assert finding.state == state
    assert finding.found.startswith(text.format(name=name, NAME=name.upper()))


def test_a_vendors_backend_takes_the_place_of_the_cores(printed, name):
    """The core's is not loaded with the backend: it includes all of torch's headers, and half of torch.distributed."""
    code = """
        import sys
        print(sorted({"torch_backplane.distributed", d + "._distributed"} & sys.modules.keys()))
        import torch.distributed as dist
        made = []
        def make(store, rank, size, timeout):
            made.append(size)
            return dist.ProcessGroupGloo(store, rank, size, timeout)
        dist.Backend.register_backend("vendor", make, devices=[d])
        before = dist.Backend.default_device_backend_map[d]
        dist.Backend.default_device_backend_map[d] = "vendor"
        dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())
        print(made, before)
    """
    assert printed(code).split() == ["[]", "[1]", f"{name}ccl"]


@pytest.mark.long
@pytest.mark.requires("collective")
def test_the_collectives_of_gpu_check(name):
    program = Path(__file__).parents[2] / "gpu_collectives.py"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes", "1", "--nproc-per-node", "2"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*words, str(program), name], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1:] == ["69 collectives of 2 ranks, native: right"], done.stderr


@pytest.mark.long_after_first
@pytest.mark.parametrize("first", ["the backend", "DTensor"])
def test_attention_can_be_sharded_whichever_is_imported_first(run_in_process, name, first):
    """The backend does not import DTensor, which takes a second: the shardings are registered when it is imported."""
    code = f"""
    import sys
    import torch
    print("torch.distributed.tensor" in sys.modules)
    from torch.distributed.tensor import DTensor
    torch._import_device_backends()
    torch.zeros(1, device="{name}")
    known = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
    aten = torch.ops.aten
    print(aten._scaled_dot_product_fused_attention_overrideable.default in known)
    print(aten._scaled_dot_product_fused_attention_overrideable_backward.default in known)
    print(type(sys.modules["torch.distributed.tensor"].__spec__.loader).__name__)
    """
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0" if first == "DTensor" else "1"}
    assert run_in_process(code, env=env).stdout.splitlines() == ["False", "True", "True", "SourceFileLoader"]


def test_a_mesh_leaves_the_device_that_was_chosen(printed, name, tmp_path):
    """Without LOCAL_RANK torch sets the device to rank % devices, unless one was set."""
    code = f"""
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        m.set_device(1)
        dist.init_process_group(rank=0, world_size=1, init_method="file://{tmp_path}/store")
        mesh = init_device_mesh(d, (1,))
        print(m.current_device(), torch.empty(1, device=d).device)
        dist.destroy_process_group()
    """
    assert printed(code, "devices=2", env={"LOCAL_RANK": None}).strip() == f"1 {name}:1"
