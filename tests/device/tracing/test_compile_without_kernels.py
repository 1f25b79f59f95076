"""torch.compile with a driver that compiles no kernels: operators as eager calls, one warning; the CPU as usual."""

import os
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.once

MINIMAL = Path(__file__).resolve().parents[3] / "build" / "demo" / "minimal" / "libminimal_driver.so"

# Why a driver compiles none, and the warning's text.
REASONS = {
    "a machine without a compiler": "no C compiler on this machine: looked for nothing, since the option is compiler=n",
    "the minimal driver": "its driver compiles no kernels here (bp.compiler and bp.module",
    "the group hidden": "its driver compiles no kernels here (bp.compiler and bp.module",
}


@pytest.fixture
def run_without(run_in_process, name, shim, tmp_path):
    """``run_without(code, driver)``: the process, in which the driver has no kernels."""

    def run(code, driver="the group hidden"):
        prefix = name.upper()
        code = f'DEVICE = "{name}"\n{code}'
        if driver == "the minimal driver":
            return run_in_process(code, env={f"{prefix}_DRIVER": str(MINIMAL), f"{prefix}_SHIMS": None})
        if driver == "a machine without a compiler":
            return run_in_process(code, options="compiler=none", env={f"{prefix}_CACHE_DIR": str(tmp_path)})
        options = ",".join(filter(None, [os.environ.get(f"{prefix}_OPTIONS"), "hide_groups.groups=bp.compiler"]))
        return run_in_process(code, options=options, env={f"{prefix}_SHIMS": str(shim("hide_groups"))})

    return run


CALLS = """
import warnings
import torch
import torch.nn.functional as F

torch._inductor.config.force_disable_caches = True


def changed(x):
    x.add_(1)
    x[0] = 5.0
    return x.t().reshape(-1) + 1


def constants(x):
    row = torch.tensor([1.0, 2.0], device=DEVICE) * torch.arange(2, device=DEVICE)
    return x + torch.tensor(2.0, device=DEVICE) + row


def halves(x):
    with torch.autocast(DEVICE, torch.bfloat16):
        return (x @ x.t()).relu()


functions = {
    "pointwise": lambda x: (x + 1).sin(),
    "changed": changed,
    "constants": constants,
    "halves": halves,
    "random": lambda x: F.dropout(x, 0.5) + torch.rand_like(x),
    "branches": lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,)),
    "views": lambda x: (x[:, 1:], x.unfold(1, 2, 1), x.t()[::2]),
    "as many as there are": lambda x: x[x > 0].sum(),
    "nothing goes in": lambda x: torch.ones(3, device=DEVICE) * 2,
}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for label, function in functions.items():
        for settings in ({}, {"dynamic": True}) if label in ("pointwise", "views") else ({},):
            torch._dynamo.reset()
            results = []
            for call in (function, torch.compile(function, **settings)):
                torch.manual_seed(0)
                x = torch.linspace(-1, 2, 8).view(4, 2).to(DEVICE)
                results.append((call(x), x))
            torch.testing.assert_close(*results, rtol=0, atol=0)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(functions["pointwise"])(torch.ones(3)), torch.ones(3).add(1).sin())
for one in seen:
    if "one by one" in str(one.message):
        print(one.message)
"""


@pytest.mark.long
@pytest.mark.parametrize("driver", REASONS)
def test_operators_are_called_one_by_one_and_one_warning_says_why(run_without, name, driver):
    lines = run_without(CALLS, driver).stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"torch.compile calls the operators of {name} one by one")
    assert REASONS[driver] in lines[0]
    assert 'backend="aot_eager"' in lines[0]


TRAINING = """
import torch
from torch import nn
from torch_backplane import testing

torch._inductor.config.force_disable_caches = True


def losses(compile_):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Dropout(0.2), nn.LayerNorm(8), nn.Linear(8, 20)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    call = torch.compile(model) if compile_ else model
    step = torch.compile(optimizer.step) if compile_ else optimizer.step
    found = []
    for i in range(3):
        numbers = torch.arange(3 * (5 + i), device=DEVICE).view(3, -1) % 20
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(call(numbers).flatten(0, 1), numbers.flatten())
        loss.backward()
        step()
        found.append(loss.item())
    return found


torch.testing.assert_close(losses(True), losses(False), rtol=1e-6, atol=1e-6)
print(torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0)
"""


@pytest.mark.long
def test_a_model_trains_as_in_eager(run_without):
    assert run_without(TRAINING).stdout.split() == ["True"]


ERRORS = """
import torch
from torch_backplane.inductor import eager_calls

def f(x):
    return (x + 1).sin()

x = torch.ones(3, device=DEVICE)
try:
    torch._inductor.compile(torch.fx.symbolic_trace(f), [x])
except Exception as error:
    print(" ".join(str(error).splitlines()[:2]))
torch._inductor.list_mode_options = lambda *_: {"default": {}}
eager_calls._lite.cache_clear()
try:
    torch.compile(f)(x)
except Exception as error:
    print(" ".join(str(error).splitlines()[:2]))
for backend in ("eager", "aot_eager"):
    assert torch.equal(torch.compile(f, backend=backend)(x).cpu(), f(x).cpu())
torch._dynamo.reset()
torch.testing.assert_close(torch.compile(f)(torch.ones(3)), f(torch.ones(3)))
"""


@pytest.mark.long
def test_a_torch_without_such_a_mode_and_what_is_compiled_ahead_are_errors(run_without):
    """The CPU's code is generated all the same, and the other backends run."""
    lines = run_without(ERRORS).stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert REASONS["the group hidden"] in line
        assert 'backend="aot_eager"' in line


@pytest.mark.long
def test_a_vendors_own_registration_with_inductor_takes_its_place(run_without, run_in_process, name):
    code = f"""
import torch
from torch._inductor.codegen import common
class Mine(Exception): pass
def refuse(*args): raise Mine("the vendor's")
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.scheduler import BaseScheduling
wrapper = type("W", (PythonWrapperCodegen,), dict(create=staticmethod(refuse)))
common.register_backend_for_device("{name}", type("S", (BaseScheduling,), dict(__init__=refuse)), wrapper)
common.register_device_op_overrides("{name}", common.DeviceOpOverrides())
try:
    torch.compile(lambda x: x + 1)(torch.ones(3, device="{name}"))
except Exception as error:
    print(error)
"""
    assert "the vendor's" in run_in_process(code).stdout
    done = run_without(code)
    assert "the vendor's" in done.stdout
    assert "one by one" not in done.stderr


def test_no_name_of_inductors_is_in_the_device_module(device_module):
    """Inductor looks them up, which registers the device, and uses what is registered."""
    assert not {"Scheduling", "PythonWrapperCodegen"} & set(dir(device_module))
    with pytest.raises(AttributeError, match="Scheduling is registered with Inductor"):
        _ = device_module.Scheduling
    from torch._inductor.codegen import common

    assert torch._C._get_privateuse1_backend_name() in common.device_codegens


@pytest.mark.long
def test_the_hook_of_inductor_registers_the_device(run_in_process, name):
    """From torch 2.15 on Inductor calls it instead of looking names up; also for a driver without kernels."""
    code = f"""
    import torch
    from torch._inductor.codegen import common
    before = "{name}" in common.device_codegens
    torch.{name}._inductor_backend_init()
    print(before, "{name}" in common.device_codegens)
    """
    for env in ({}, {"MYDEVICE_DRIVER": str(MINIMAL), "MYDEVICE_SHIMS": None}):
        assert run_in_process(code, env=env).stdout.split() == ["False", "True"]
