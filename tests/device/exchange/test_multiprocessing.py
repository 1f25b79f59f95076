"""Tensors and events between processes: ``sharing.py`` has the scenarios of two processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gates
import pytest
import sharing

pytestmark = pytest.mark.once

PICKLE = "from multiprocessing.reduction import ForkingPickler"


KINDS = ["kind=unified,memory=256MiB"]
KINDS += [pytest.param(kind, marks=pytest.mark.long) for kind in ("kind=discrete", f"{KINDS[0]},strict=on")]


@pytest.fixture(scope="module", params=KINDS)
def outcome(request, shim, device):
    """The result of each scenario, the errors and the exit status."""
    prefix = device.type.upper()
    env = {key: value for key, value in os.environ.items() if not key.startswith(f"{prefix}_")}
    env |= {f"{prefix}_OPTIONS": request.param, f"{prefix}_SHIMS": shim("hold_streams")}
    script = Path(__file__).parents[1] / "sharing.py"
    command = [sys.executable, "-W", "ignore", str(script), device.type, shim("hold_streams")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    results = dict(json.loads(line) for line in done.stdout.splitlines())
    return results | {"code": done.returncode, "errors": done.stderr}


@pytest.mark.parametrize("scenario", [scenario.__name__ for scenario in sharing.SCENARIOS])
def test_sharing(outcome, scenario):
    assert outcome.get(scenario) is True, outcome.get(scenario, outcome["errors"])


def test_both_processes_end_well(outcome):
    assert (outcome["end"], outcome["code"], outcome["errors"]) == (0, 0, "")


@pytest.mark.long_after_first
def test_what_a_process_sent_before_it_ended_is_refused(run_in_process, name, memory_kind):
    options = {"options": f"kind={memory_kind}", "env": {f"{name.upper()}_DRIVER": None}}
    code = f"import torch\n{PICKLE}\nprint(ForkingPickler.dumps(torch.ones(9, device='{name}')).tobytes().hex())"
    message = run_in_process(code, **options).stdout.strip()
    code = f"""
        import pickle, torch
        try:
            pickle.loads(bytes.fromhex("{message}"))
        except RuntimeError as error:
            print("has ended" in str(error))
        print(torch.ones(2, device="{name}").sum().item())
    """
    assert run_in_process(code, **options).stdout.split() == ["True", "2.0"]


@pytest.mark.long_after_first
def test_a_receiver_that_is_killed_gives_its_tensors_up(run_in_process, name, memory_kind):
    """Even if a process that it has forked lives on."""
    receiver = """
import os, pickle, sys, torch
x = pickle.loads(bytes.fromhex(sys.argv[1]))
y = pickle.loads(bytes.fromhex(sys.argv[2]))
print(x.sum().item() + y.sum().item(), flush=True)
os.fork()
sys.stdin.read()
"""
    sender = f"""
        import gc, subprocess, sys, torch
        {PICKLE}
        m = torch.{name}

        def free():
            gc.collect()
            m.ipc_collect()
            m.synchronize()
            m.empty_cache()
            return m.mem_get_info()[0]

        before = free()
        tensors = [torch.full((1 << 20,), value, device="{name}") for value in (5.0, 6.0)]
        messages = [ForkingPickler.dumps(tensor).tobytes().hex() for tensor in tensors]
        command = [sys.executable, "-c", {receiver!r}, *messages]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        print(process.stdout.readline().strip() == str(11.0 * (1 << 20)))
        del tensors
        print(before - free() >= 8 << 20)
        process.kill()
        process.wait()
        print(free() == before)
        process.stdin.close()
    """
    options = {"options": f"kind={memory_kind}", "env": {f"{name.upper()}_DRIVER": None}}
    assert run_in_process(sender, **options).stdout.split() == ["True", "True", "True"]


def test_a_driver_without_it_names_the_alternative(run_in_process, name, tmp_path):
    code = f"""
        import torch
        {PICKLE}
        for thing in (torch.ones(2, device="{name}"), None):
            try:
                ForkingPickler.dumps(thing if thing is not None else torch.{name}.Event(interprocess=True))
            except NotImplementedError as error:
                print("bp.ipc" in str(error) and ".cpu()" in str(error))
        print(len(ForkingPickler.dumps(torch.ones(2))) > 0)
    """
    env = {f"{name.upper()}_DRIVER": gates.minimal_driver(tmp_path), f"{name.upper()}_SHIMS": None}
    assert run_in_process(code, options="devices=1", env=env).stdout.split() == ["True", "True", "True"]


@pytest.mark.long
def test_a_device_that_is_not_visible_here_is_named(run_in_process, name):
    """The devices of two processes are matched by uuid."""
    receiver = """
import pickle, sys, torch
try:
    x = pickle.loads(bytes.fromhex(sys.argv[1]))
    print(x.device, x.sum().item())
except RuntimeError as error:
    print("not", "VISIBLE_DEVICES" in str(error))
"""
    sender = f"""
        import os, subprocess, sys, torch
        {PICKLE}
        x = torch.full((3,), 4.0, device="{name}:1")
        message = ForkingPickler.dumps(x).tobytes().hex()
        for visible in ("1", "0"):
            env = dict(os.environ, {name.upper()}_VISIBLE_DEVICES=visible)
            command = [sys.executable, "-c", {receiver!r}, message]
            print(subprocess.run(command, env=env, capture_output=True, text=True).stdout)
    """
    done = run_in_process(sender, options="devices=2", env={f"{name.upper()}_DRIVER": None})
    assert done.stdout.split() == [f"{name}:0", "12.0", "not", "True"]


@pytest.mark.long_after_first
def test_the_memory_of_a_sent_tensor_can_still_be_recorded_on_streams(run_in_process, name, memory_kind, shim):
    """What was sent is wrapped, and record_stream reaches the allocator's block."""
    code = (
        gates.prelude(shim("hold_streams"))
        + f"""
import torch
{PICKLE}
m = torch.{name}
x = torch.ones(1 << 18, device="{name}")
parts = ForkingPickler.dumps(x)
from torch_backplane import _backend, multiprocessing
import pickle
assert pickle.loads(parts).data_ptr() == x.data_ptr()  # gives the message's reference back
s = m.Stream()
s.wait_stream(m.current_stream())
with gates.shut(s):
    with m.stream(s):
        y = x.clone()
    x.record_stream(s)
    place = x.untyped_storage().data_ptr()
    if "{memory_kind}" == "discrete":
        del x
        z = torch.zeros(1 << 18, device="{name}")
        print(z.data_ptr() != place)
    else:
        print(True)  # memory that is never cached
s.synchronize()
print(y.sum().item() == 1 << 18)
"""
    )
    env = {f"{name.upper()}_DRIVER": None, f"{name.upper()}_SHIMS": shim("hold_streams")}
    done = run_in_process(code, options=f"kind={memory_kind},stream=async", env=env)
    assert done.stdout.split() == ["True", "True"]
