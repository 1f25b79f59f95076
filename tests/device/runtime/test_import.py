"""Import and autoload: either order, refusals before native code, no driver, a second backend, repeated setup."""

import os
from pathlib import Path

import pytest
import torch

from torch_backplane import _setup

pytestmark = pytest.mark.once


def extended(path):
    """PYTHONPATH with this folder as the first."""
    return os.pathsep.join([str(path), *filter(None, [os.environ.get("PYTHONPATH")])])


def run_ok(run_in_process, code, **kwargs):
    return run_in_process(code, **kwargs).stdout.strip()


@pytest.mark.fresh
def test_an_import_of_torch_loads_the_device(run_in_process, name):
    code = f"""
        import torch
        print(torch.ones(3, device="{name}").sum().item(), torch.{name}.__name__)
        from torch.{name}.amp import autocast, GradScaler
        from torch.{name}.memory import max_memory_allocated
        from torch.{name} import random, streams
        import torch.{name}.random
        print(autocast.__name__, max_memory_allocated() > 0, streams.Stream is torch.{name}.Stream)
    """
    assert run_ok(run_in_process, code) == f"3.0 torch.{name}\nautocast True True"


@pytest.mark.fresh
def test_the_package_may_be_imported_first(run_in_process, backend_package, name):
    code = f"""
        import {backend_package.__name__} as package
        import torch
        print(torch.ones(3, device="{name}").sum().item(), package.device_count())
    """
    out = run_ok(run_in_process, code, options="devices=3")
    assert out == "3.0 3"


@pytest.mark.fresh
@pytest.mark.long_after_first
@pytest.mark.parametrize("first", ["from torch_backplane import kernel", "from torch_backplane import ops, fallback"])
def test_backplane_may_be_imported_first(run_in_process, name, first):
    """The backend's package defines operators by torch_backplane.ops, which imports torch, which loads the package."""
    done = run_in_process(f"{first}\nimport torch; print(torch.ones(2, device='{name}').tolist())")
    assert (done.stdout, done.stderr) == ("[1.0, 1.0]\n", "")


@pytest.mark.fresh
def test_T06_nothing_of_triton_is_imported(run_in_process, name):
    code = f"""
        import sys, torch
        torch.ones(3, device="{name}").sum().item()
        print([module for module in sys.modules if f"{{module}}.".startswith(("triton.", "torch_backplane.triton."))])
    """
    assert run_ok(run_in_process, code) == "[]"


def test_what_a_program_may_not_use_is_imported_with_it(run_in_process, backend_package, name):
    code = f"""
        import sys, torch
        late = {{"torch.nn.attention.flex_attention", "torch.nested._internal.sdpa"}} - set(sys.modules)
        import {backend_package.__name__}
        torch.ones(3, device="{name}").sum().item()
        print(late & set(sys.modules))
    """
    assert run_ok(run_in_process, code, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) == "set()"


def test_without_autoload_only_an_import_of_the_package_loads_it(run_in_process, backend_package, name):
    code = f"""
        import torch
        before = hasattr(torch, "{name}")
        import {backend_package.__name__}
        print(before, torch.ones(2, device="{name}").tolist())
    """
    assert run_ok(run_in_process, code, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) == "False [1.0, 1.0]"


def test_E39_import_and_queries_open_no_device(run_in_process, name):
    code = f"""
        import torch
        m = torch.{name}
        m.is_available(), m.device_count(), m.current_device(), m.get_device_properties(1), m.get_device_name()
        torch.manual_seed(1), m.get_rng_state_all(), m.default_generators, m.memory_stats(), m.memory_allocated()
        m.get_amp_supported_dtype(), m.is_bf16_supported(), m.synchronize(), m.empty_cache(), m.memory_summary()
        torch.accelerator.is_available(), torch.accelerator.current_accelerator(), m.Event(), m.current_stream()
        print(m.is_initialized(), m.memory.__name__)
        torch.empty(1, device="{name}")
        print(m.is_initialized())
    """
    assert run_ok(run_in_process, code, options="devices=2") == "False torch_backplane.device.memory\nTrue"


REFUSALS = [
    pytest.param(
        {"TORCH_MINOR": "2.3"}, ["built for torch 2.3", "this is torch 2.", "pip install 'torch==2.3.*'"], id="torch"
    ),
    pytest.param(
        {"CORE_PROTOCOL": 99, "SDK_VERSION": "9.9.0"},
        ["torch-backplane 9.9.0 (core protocol 99)", "core protocol 1)", "pip install 'torch-backplane~=9.9.0'"],
        id="protocol",
    ),
]


@pytest.mark.parametrize(("changes", "words"), REFUSALS)
def test_a_mismatch_is_a_warning_of_autoload_and_an_error_of_an_import(
    run_in_process, other_package, backend_package, changes, words
):
    """The fake package has no native code, so a refusal that came later would be another error."""
    path = other_package("wrongchip", DEVICE="wrongchip", **changes)
    code = """
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            import torch
        (text,) = [str(w.message) for w in seen if "wrongchip" in str(w.message)]
        print(text)
        print("----")
        try:
            import wrongchip
        except ImportError as error:
            print(error, error.name, hasattr(torch, "wrongchip"))
    """
    warning, error = run_ok(run_in_process, code, env={"PYTHONPATH": extended(path)}).split("----")
    for word in words:
        assert word in warning
        assert word in error
    assert error.endswith(" wrongchip False")


def test_a_second_backend_is_refused_by_name_and_torch_stays_usable(
    run_in_process, other_package, backend_package, name
):
    first = backend_package.__name__
    path = other_package("wrongchip", DEVICE="wrongchip")
    code = f"""
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            import {first}, torch
        print(torch.ones(2, device="{name}").tolist(), [str(w.message) for w in seen])
        try:
            import wrongchip
        except ImportError as error:
            print(error)
    """
    out = run_ok(run_in_process, code, env={"PYTHONPATH": extended(path)})
    works, refusal = out.split("\n")
    assert works.startswith("[1.0, 1.0] [\"the torch backend 'wrongchip' is installed but unavailable")
    assert f"{first} is being imported" in works
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in refusal
    assert f"wrongchip (device 'wrongchip') is refused: {first} (device '{name}') is loaded already" in refusal


@pytest.mark.long
def test_of_two_installed_backends_one_loads_and_torch_stays_usable(
    run_in_process, other_package, backend_package, name
):
    """The first entry point is loaded; the fake one has no native code, so here it is the real one or none."""
    path = other_package("wrongchip", DEVICE="wrongchip")
    done = run_in_process("import torch; print(torch.ones(2).tolist())", env={"PYTHONPATH": extended(path)})
    assert done.stdout.strip() == "[1.0, 1.0]"
    assert "the torch backend 'wrongchip' is installed but unavailable" in done.stderr


@pytest.mark.fresh
def test_a_driver_that_does_not_exist_is_an_error_of_an_import_and_torch_stays_usable(run_on, backend_package):
    code = f"""
        import torch
        print(torch.ones(2).tolist())
        import {backend_package.__name__}
    """
    done = run_on(code, DRIVER="/nowhere/libdriver.so", check=False)
    assert (done.returncode, done.stdout.strip()) == (1, "[1.0, 1.0]")
    warning, _, error = done.stderr.partition("Traceback")
    assert warning.count("is installed but unavailable") == 1
    assert "ImportError" in error
    assert "/nowhere/libdriver.so" in error


@pytest.mark.fresh
def test_after_an_autoload_that_failed_use_and_import_give_the_drivers_reason(run_on, backend_package, name):
    """Wrong options: the known ones are listed."""
    code = f"""
        import torch
        print(torch.{name}.device_count(), torch.{name}.is_available(), torch.accelerator.is_available())
        for use in (lambda: torch.ones(2, device="{name}"), lambda: torch.ones(2).to("{name}"), torch.{name}.init):
            try:
                use()
            except RuntimeError as error:
                print("unknown option 'devises'; known: devices=" in str(error))
        try:
            import {backend_package.__name__}
        except ImportError as error:
            print("unknown option 'devises'; known: devices=" in str(error))
    """
    done = run_on(code, "devises=3")
    assert done.stdout.split() == ["0", "False", "False", *["True"] * 4]
    assert done.stderr.count("is installed but unavailable") == 1


def test_E02_without_a_driver_the_count_is_zero_and_use_gives_the_reason(run_in_process, other_package, name):
    path = other_package("driverless", native=True)
    (path / "driverless" / "lib" / f"lib{name}_driver.so").unlink()
    code = f"""
        import torch, driverless
        print(torch.accelerator.device_count(), torch.{name}.device_count(), torch.{name}.is_available())
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward()  # autograd asks the guard for the count
        torch.manual_seed(3)
        print(x.grad.tolist())
        try:
            torch.empty(2, device="{name}")
        except RuntimeError as error:
            print("lib{name}_driver.so" in str(error))
    """
    env = {"PYTHONPATH": extended(path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", f"{name.upper()}_DRIVER": None}
    assert run_ok(run_in_process, code, env=env) == "0 0 False\n[2.0, 2.0]\nTrue"


def test_E48_setup_and_rename_again_change_nothing(backend_package, name):
    before = torch.Tensor.__dict__[name]
    _setup.setup(backend_package.__name__)
    _setup.autoload(backend_package.__name__)
    torch.utils.rename_privateuse1_backend(name)
    assert torch.Tensor.__dict__[name] is before
    with pytest.raises(RuntimeError, match="already"):
        torch.utils.rename_privateuse1_backend("anotherchip")


def test_E48_methods_are_generated(device, name):
    x = getattr(torch.ones(2), name)()
    assert x.device == device
    assert getattr(x, f"is_{name}")
    assert getattr(torch.nn.Linear(2, 2), name)().weight.device == device
    assert getattr(x.untyped_storage(), f"is_{name}")


def test_the_package_exports_the_device_module(backend_package, device_module):
    assert backend_package.is_available is device_module.is_available
    assert backend_package.default_generators == device_module.default_generators


def test_paths_for_extensions_exist(backend_package, name):
    assert any((Path(p) / "backplane" / "kernel.h").is_file() for p in backend_package.include_paths())
    assert any((Path(p) / f"lib{name}.so").is_file() for p in backend_package.library_paths())


def test_the_account_lists_driver_and_torch(run_in_process, backend_package, name):
    code = f"import runpy, sys; sys.argv = ['x']; runpy.run_module('{backend_package.__name__}', run_name='__main__')"
    done = run_in_process(code, options="devices=2", env={"COLUMNS": "60", f"{name.upper()}_DRIVER": None}, check=False)
    assert done.returncode == 0, done.stderr
    for word in (f"lib{name}_driver.so", torch.__version__, f"{name}:1", "devices=2"):
        assert word in done.stdout


@pytest.mark.fresh
def test_the_device_module_by_itself_says_what_to_import_first(run_in_process):
    done = run_in_process("import torch_backplane.device", check=False)
    assert "ImportError: import torch, or the backend's package, before torch_backplane.device" in done.stderr


@pytest.mark.long_after_first
@pytest.mark.parametrize("hidden", [False, True], ids=["before the import", "before a device is visible"])
def test_a_backward_on_the_cpu_may_come_first(run_in_process, name, hidden):
    """Torch starts autograd's threads, one for each device, at the first backward of the process."""
    code = f"""
        import os, torch
        os.environ["{name.upper()}_VISIBLE_DEVICES"] = ""
        if {hidden}:
            torch._import_device_backends()
            assert torch.{name}.device_count() == 0
        x = torch.ones(3, requires_grad=True)
        (x * x).sum().backward()
        del os.environ["{name.upper()}_VISIBLE_DEVICES"]
        torch._import_device_backends()
        for index in range(torch.{name}.device_count()):
            y = torch.ones(3, device=f"{name}:{{index}}", requires_grad=True)
            (y * y).sum().backward()
            print(y.grad.tolist())
    """
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert run_in_process(code, options="devices=2", env=env).stdout.splitlines() == ["[2.0, 2.0, 2.0]"] * 2
