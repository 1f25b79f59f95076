"""Replacing the driver at run time: every refusal names what was found, what is needed and the cure."""

import os

import pytest

import backplane_sdk

pytestmark = pytest.mark.once

THIS_ONE = f"This one is {backplane_sdk.__version__}."
ODD = {
    "no_symbol": 1,
    "other_abi": 2,
    "short_table": 3,
    "half_group": 4,
    "refuses": 5,
    "null_table": 6,
    "no_devices": 7,
    "old_abi": 8,
    "no_reason": 9,
}


@pytest.fixture
def run(run_in_process, name):
    """``run(code, DRIVER=path)``: a process with only these variables of the device, and without autoload."""

    def run(code, **variables):
        prefix = name.upper() + "_"
        env = dict.fromkeys(variable for variable in os.environ if variable.startswith(prefix))
        env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        return run_in_process(
            code, env=env | {prefix + key: str(value) for key, value in variables.items()}, check=False
        )

    return run


@pytest.fixture
def refusal(run, backend_package):
    """``refusal(DRIVER=path)``: the error of an import of the package."""

    def refusal(**variables):
        result = run(f"import {backend_package.__name__}", **variables)
        assert result.returncode != 0
        return result.stderr

    return refusal


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ("no_symbol", ["is no Backplane driver", "bp_driver_get", "BP_EXPORT"]),
        ("other_abi", ["offers driver ABI 0.3", "needed is 0.2", "Build it against", THIS_ONE]),
        ("old_abi", ["offers driver ABI 0.1", "copy and copy_async (no kind", "stream_from_native", "Build it"]),
        ("no_reason", ["refuses (UNSUPPORTED)", "it gave no reason"]),
        ("short_table", ["a table of 64 bytes", "nine required entries", "struct_size = sizeof(bp_driver)"]),
        ("half_group", ["incomplete", "group events", "stream_create is missing|event_create is missing", "Implement"]),
        ("refuses", ["refuses (UNSUPPORTED)", "libodd.so.3 is not installed"]),
        ("null_table", ["returned BP_OK and no table"]),
    ],
)
def test_a_wrong_driver_is_refused_by_name(refusal, shim, odd, says):
    path = shim("odd_driver", ODD=ODD[odd])
    text = refusal(DRIVER=path)
    assert path in text
    for words in says:
        assert any(word in text for word in words.split("|")), text


def test_a_driver_without_devices_loads_and_counts_zero(run, backend_package, name, shim):
    code = f"""
    import torch, {backend_package.__name__}
    print(torch.{name}.device_count(), torch.{name}.is_available())
    torch.empty(1, device="{name}")
    """
    result = run(code, DRIVER=shim("odd_driver", ODD=ODD["no_devices"]))
    assert result.stdout.split() == ["0", "False"], result.stderr
    assert result.returncode != 0
    assert "the driver finds no device" in result.stderr


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("libvendor.so", "is not absolute"),
        ("/no/such/libvendor.so", "There is no file '/no/such/libvendor.so'"),
        (__file__, "cannot be opened"),
    ],
)
def test_a_wrong_path_is_refused(refusal, path, says):
    assert says in refusal(DRIVER=path)


@pytest.mark.parametrize(
    ("place", "says"), [("loop/libvendor.so", "levels of symbolic links"), ("n" * 300, "name too long")]
)
def test_a_path_that_cannot_be_looked_up_is_refused_with_the_reason_each_time(
    run, backend_package, tmp_path, place, says
):
    """As in a folder that may not be read, which tests that run as root cannot have."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    code = f"""
    for _ in range(2):
        try:
            import {backend_package.__name__}
        except ImportError as error:
            print(error)
    """
    lines = run(code, DRIVER=tmp_path / place).stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "cannot be looked up" in line
        assert says in line.lower()
        assert "_DRIVER" in line


@pytest.mark.fresh
def test_a_wrong_driver_leaves_torch_usable(run_on, shim):
    driver = shim("odd_driver", ODD=ODD["refuses"])
    result = run_on("import torch; print(torch.ones(2).sum().item())", DRIVER=driver)
    assert result.stdout.strip() == "2.0"
    assert "libodd.so.3 is not installed" in result.stderr


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("SHIMS", "nosuchshim", "There is no shim 'nosuchshim'"),
        ("SHIMS", "n" * 300, "There is no shim 'nnn"),
        ("SHIMS", "/no/such/libshim.so", "There is no file '/no/such/libshim.so'. Set {SHIMS} to names"),
        ("OPTIONS", "fault.alloc=17", "no shim 'fault' is loaded"),
        ("OPTIONS", "nosuchkey=1", "nosuchkey"),
        ("OPTIONS", "kind=martian", "martian"),
    ],
)
def test_wrong_shims_and_options_are_refused(refusal, name, variable, value, says):
    text = refusal(**{variable: value})
    assert says.format(SHIMS=f"{name.upper()}_SHIMS") in text
    assert f"{name.upper()}_DRIVER" not in text or variable == "OPTIONS"


def test_an_explicit_emulate_shim_is_loaded(run, backend_package, name):
    code = f"import torch, {backend_package.__name__}; print(torch.ones(3, device='{name}').cpu().sum().item())"
    result = run(code, SHIMS="emulate")
    assert result.stdout.strip() == "3.0", result.stderr


def test_a_pipe_in_place_of_a_driver_is_not_waited_for(refusal, tmp_path):
    os.mkfifo(tmp_path / "libpipe.so", 0o600)
    assert "libpipe.so' is no regular file" in refusal(DRIVER=tmp_path / "libpipe.so")


USE = """
import torch
torch.{name}.Stream()
torch.ones(3, device="{name}").cpu()
torch.{name}.Event().record()
torch.ones(3).pin_memory()
torch.{name}.Event().record()
print("survived")
"""
CANNOT_BE = "-> OK with a NULL result"


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ("nothing", ["survived"]),
        ("host_alloc", ["RuntimeError", "host_alloc " + CANNOT_BE]),
        ("stream_create", ["RuntimeError", "stream_create " + CANNOT_BE]),
        ("event_create", ["RuntimeError", "event_create " + CANNOT_BE]),
        ("a group's id", ['query_ext("bp.peer", 1) answers with the group "bp.other", version 1', "BP_UNSUPPORTED"]),
        ("a group's version", ['query_ext("bp.peer", 1) answers with the group "bp.peer", version 7']),
        ("priorities", ["priority range of device 0, 2147483647 to -2147483648, is too wide"]),
        ("copy_alignment of 3", ["a copy_alignment of 3 bytes for device 0; 0 or a power of two"]),
        (
            "copy_alignment of 2^30",
            ["a copy_alignment of 1073741824 bytes for device 0; 0 or a power of two of at most"],
        ),
        ("alloc", ["alloc(device 0) -> OK with the address 0 for"]),
        ("alloc of an odd address", ["alloc(device 0) -> OK with the address", "a multiple of 512"]),
        ("alloc in time", ["alloc(device 0) -> TIMEOUT", "no timeout: the driver ended it by itself"]),
        ("copy in time", ["copy(device 0) -> TIMEOUT", "no timeout: the driver ended it by itself"]),
    ],
)
def test_a_driver_with_a_wrong_answer_is_refused_by_name(run_on, name, shim, about, says):
    done = run_on(USE.format(name=name), f"lies.about={about}", SHIMS=shim("lies"), check=False)
    assert ("survived" in done.stdout) == (about == "nothing")
    for words in says:
        assert words in done.stdout + done.stderr
