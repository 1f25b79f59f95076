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

PICKLE = "from multiprocessing.reduction import ForkingPickler\n"

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
def test_what_a_process_sent_before_it_ended_is_refused(printed, memory_kind):
    code = PICKLE + "print(ForkingPickler.dumps(torch.ones(9, device=d)).tobytes().hex())"
    message = printed(code, f"kind={memory_kind}").strip()
    code = f"""
        import pickle
        try:
            pickle.loads(bytes.fromhex("{message}"))
        except RuntimeError as error:
            print("has ended" in str(error))
        print(torch.ones(2, device=d).sum().item())
    """
    assert printed(code, f"kind={memory_kind}").split() == ["True", "2.0"]


@pytest.mark.long
def test_a_receiver_that_is_killed_gives_its_tensors_up(printed, memory_kind):
    """Even if a process that it has forked lives on."""
    receiver = """
import os, pickle, sys, torch
x, y = (pickle.loads(bytes.fromhex(message)) for message in sys.argv[1:])
print(x.sum().item() + y.sum().item(), flush=True)
os.fork()
sys.stdin.read()
"""
    sender = f"""
import gc, subprocess, sys

def free():
    gc.collect()
    m.ipc_collect()
    m.synchronize()
    m.empty_cache()
    return m.mem_get_info()[0]

before = free()
tensors = [torch.full((1 << 20,), value, device=d) for value in (5.0, 6.0)]
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
    assert printed(PICKLE + sender, f"kind={memory_kind}").split() == ["True", "True", "True"]


def test_a_driver_without_it_names_the_alternative(printed, tmp_path):
    code = """
for make in (lambda: torch.ones(2, device=d), lambda: m.Event(interprocess=True)):
    try:
        ForkingPickler.dumps(make())
    except NotImplementedError as error:
        print("bp.ipc" in str(error) and ".cpu()" in str(error))
print(len(ForkingPickler.dumps(torch.ones(2))) > 0)
"""
    found = printed(PICKLE + code, "devices=1", DRIVER=gates.minimal_driver(tmp_path), SHIMS=None)
    assert found.split() == ["True", "True", "True"]


@pytest.mark.long
def test_a_device_that_is_not_visible_here_is_named(printed, name):
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
import os, subprocess, sys
x = torch.full((3,), 4.0, device=d + ":1")
message = ForkingPickler.dumps(x).tobytes().hex()
for visible in ("1", "0"):
    env = dict(os.environ, **{{d.upper() + "_VISIBLE_DEVICES": visible}})
    command = [sys.executable, "-c", {receiver!r}, message]
    print(subprocess.run(command, env=env, capture_output=True, text=True).stdout)
"""
    assert printed(PICKLE + sender, "devices=2").split() == [f"{name}:0", "12.0", "not", "True"]


@pytest.mark.long_after_first
def test_the_memory_of_a_sent_tensor_can_still_be_recorded_on_streams(printed, memory_kind, shim):
    """What was sent is wrapped, and record_stream reaches the allocator's block."""
    code = f"""
import pickle
x = torch.ones(1 << 18, device=d)
parts = ForkingPickler.dumps(x)
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
        z = torch.zeros(1 << 18, device=d)
        print(z.data_ptr() != place)
    else:
        print(True)  # memory that is never cached
s.synchronize()
print(y.sum().item() == 1 << 18)
"""
    code = gates.prelude(shim("hold_streams")) + PICKLE + code
    assert printed(code, f"kind={memory_kind},stream=async", shim_name="hold_streams").split() == ["True", "True"]
