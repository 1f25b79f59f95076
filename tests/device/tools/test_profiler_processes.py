"""torch.profiler over a driver that fails, hangs or has no profile, in a process of several and beside other tools."""

import json
import textwrap

import pytest

pytestmark = pytest.mark.requires("profile")

PRELUDE = """
import warnings
import torch
from torch.profiler import ProfilerActivity as A, profile
x = torch.empty(64, device="{name}")
x.fill_(1)
torch.{name}.synchronize()

def fails():
    open("{folder}/armed", "w").close()
    x.fill_(2)

def fills(p):
    is_device = lambda event: event.device_type == torch.autograd.DeviceType.PrivateUse1
    return sum(is_device(event) and event.name == "Memset" for event in p.events())

warnings.simplefilter("always")
seen = warnings.catch_warnings(record=True).__enter__()
"""
PROFILE = """
with profile(activities=[A.CPU, A.PrivateUse1]) as p:
    fails()
print(fills(p), *[str(w.message) for w in seen])
"""
OLDER_PROFILE = """
with torch.autograd.profiler.profile(use_device="{name}", use_kineto=False) as p:
    fails()
(fill,) = [row for row in p.key_averages() if row.key == "aten::fill_"]
print(fill.device_time_total, fill.count == 1 and fill.cpu_time_total > 0, *[str(w.message) for w in seen])
"""


@pytest.fixture
def profiled(run_on, name, tmp_path):
    """``profiled(options, code)``: what the code prints on a driver with these options."""

    def run(options, code, shims="fault", **variables):
        code = (PRELUDE + code).format(name=name, folder=tmp_path)
        return run_on(code, options.format(folder=tmp_path), SHIMS=shims, **variables).stdout

    return run


HANG, WARNING = "fault.hang=@1,fault.armed_by={folder}/armed", "has work that was not complete after"
REFUSED = "no counters are free (injected by fault.profile=1). The profile has no times of the device"
ENDINGS = {
    "the device hangs": (HANG, PROFILE, "0 ", WARNING),
    "the device hangs, older profiler": (HANG, OLDER_PROFILE, "0 True ", WARNING),
    "the device is in error": ("fault.kernel=@1,fault.armed_by={folder}/armed", PROFILE, "0 ", "is in error"),
    "the recording cannot start": ("fault.profile=1", PROFILE + "print(x.sum().item() == 128)", "0 ", REFUSED),
}


@pytest.mark.parametrize(("options", "code", "result", "warning"), ENDINGS.values(), ids=ENDINGS.keys())
def test_E58_the_profile_ends_with_a_warning_when(profiled, options, code, result, warning):
    """Work that was not complete has no time."""
    printed = profiled(options, code, PROFILE_SECONDS="0.3")
    assert printed.startswith(result)
    assert warning in printed
    assert "False" not in printed


@pytest.mark.long
@pytest.mark.once
def test_E58_a_driver_without_the_group_says_what_to_write(profiled, name):
    printed = profiled("profile=off", PROFILE, shims=None)
    assert printed.startswith("0 ")
    assert f"no bp.profile. The profile has no times of the device. With {name.upper()}_SHIMS=emulate" in printed
    for kind in ("kind=unified", "kind=discrete,stream=inline"):
        assert profiled(f"profile=off,{kind}", PROFILE, shims="emulate") == "1\n"


@pytest.mark.once
def test_ranges_reach_the_vendors_tools(run_on, name):
    code = f"""
        import torch
        x = torch.empty(8, device="{name}")
        with torch.{name}.profiler.range("a range"):
            torch.{name}.profiler.mark("a mark")
        print(x.fill_(1).sum().item())
    """
    done = run_on(code, "trace.filter=bp.profile.*", SHIMS="trace")
    calls = [line.split(maxsplit=4)[4] for line in done.stderr.splitlines() if line.startswith("[trace]")]
    assert calls == [
        'bp.profile.range_push name="a range" -> OK',
        'bp.profile.mark name="a mark" -> OK',
        "bp.profile.range_pop -> OK",
    ]


SHARING = """
    import pickle, subprocess, sys, torch
    from torch.multiprocessing import reductions
    from torch.profiler import ProfilerActivity as A, profile
    def fills(p):
        is_device = lambda e: e.device_type == torch.autograd.DeviceType.PrivateUse1
        return sum(is_device(e) and e.name == "Memset" for e in p.events())
    def run(x, times):
        with profile(activities=[A.CPU, A.PrivateUse1]) as p:
            for _ in range(times):
                x.fill_(times)
            other = [] if times == 3 else [receive(x)]
        print(fills(p), x.sum().item(), *other)
    if len(sys.argv) > 1:
        rebuild, args = pickle.loads(bytes.fromhex(sys.argv[1]))
        run(rebuild(*args), 3)
        sys.exit()
    def receive(x):
        torch.{name}.synchronize()
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, pickle.dumps(reductions.reduce_tensor(x)).hex()]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    run(torch.zeros(8, device="{name}"), 5)
"""


@pytest.mark.long
@pytest.mark.once
@pytest.mark.requires("ipc")
def test_E56_two_processes_profile_a_tensor_that_they_share(run_on, name, memory_kind):
    code = textwrap.dedent(SHARING.format(name=name))
    done = run_on(f"PROGRAM = {code!r}\n" + code, f"kind={memory_kind}")
    assert done.stdout == "5 24.0 3 24.0\n"


@pytest.mark.once
def test_a_collective_is_work_of_the_device(run_on, name, tmp_path):
    code = f"""
        import torch, torch.distributed as dist
        from torch.profiler import ProfilerActivity as A, profile
        dist.init_process_group(init_method="file://{tmp_path}/store", rank=0, world_size=1)
        x = torch.ones(256, device="{name}")
        dist.all_reduce(x)
        torch.{name}.synchronize()
        with profile(activities=[A.CPU, A.PrivateUse1]) as p:
            dist.all_reduce(x)
        p.export_chrome_trace("{tmp_path}/trace.json")
        dist.destroy_process_group()
        print(x.sum().item())
    """
    assert run_on(code, "devices=1").stdout == "256.0\n"
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = [row for row in rows if row.get("cat") == "kernel" and row["name"] == f"{name}ccl:all_reduce"]
    assert [row["args"]["bytes"] for row in found] == [1024]
