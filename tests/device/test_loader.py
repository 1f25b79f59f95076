"""Replacing the driver at run time: every refusal names what was found, what is needed and the cure."""

import os
import subprocess
import sys
from pathlib import Path

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


@pytest.fixture(scope="session")
def odd_driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")

    def build(name: str) -> Path:
        path = folder / f"lib{name}.so"
        if not path.exists():
            source = Path(__file__).parent / "drivers" / "odd_driver.c"
            subprocess.run(
                [
                    os.environ.get("CC", "cc"),
                    "-std=c11",
                    "-shared",
                    "-fPIC",
                    f"-DODD={ODD[name]}",
                    f"-I{backplane_sdk.include_dir()}",
                    str(source),
                    "-o",
                    str(path),
                ],
                check=True,
            )
        return path

    return build


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MYDEVICE_")}
    return subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True, timeout=120
    )


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
def test_a_wrong_driver_is_refused_by_name(odd_driver, odd, says):
    path = odd_driver(odd)
    result = run("import mydevice", MYDEVICE_DRIVER=str(path))
    assert result.returncode != 0
    assert str(path) in result.stderr
    for words in says:
        assert any(word in result.stderr for word in words.split("|")), result.stderr


def test_a_driver_without_devices_loads_and_counts_zero(odd_driver):
    code = "import mydevice, torch; print(torch.mydevice.device_count(), torch.mydevice.is_available())"
    result = run(code, MYDEVICE_DRIVER=str(odd_driver("no_devices")))
    assert result.stdout.split() == ["0", "False"], result.stderr
    result = run(
        "import mydevice, torch; torch.empty(1, device='mydevice')", MYDEVICE_DRIVER=str(odd_driver("no_devices"))
    )
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
def test_a_wrong_path_is_refused(path, says):
    result = run("import mydevice", MYDEVICE_DRIVER=path)
    assert result.returncode != 0
    assert says in result.stderr


@pytest.mark.parametrize(
    ("place", "says"), [("loop/libvendor.so", "levels of symbolic links"), ("n" * 300, "name too long")]
)
def test_a_path_that_cannot_be_looked_up_is_refused_with_the_reason_each_time(tmp_path, place, says):
    """As in a folder that may not be read, which tests that run as root cannot have."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    code = """
import torch
for _ in range(2):
    try:
        import mydevice
    except ImportError as error:
        print(error)
"""
    result = run(code, MYDEVICE_DRIVER=str(tmp_path / place))
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "cannot be looked up" in line
        assert says in line.lower()
        assert "MYDEVICE_DRIVER" in line


def test_a_shim_that_cannot_be_looked_up_is_refused():
    result = run("import mydevice", MYDEVICE_SHIMS="n" * 300)
    assert "There is no shim 'nnn" in result.stderr


def test_a_wrong_driver_leaves_import_torch_alive(odd_driver):
    result = run("import torch; print(torch.ones(2).sum().item())", MYDEVICE_DRIVER=str(odd_driver("refuses")))
    assert result.returncode == 0
    assert result.stdout.strip() == "2.0"
    assert "libodd.so.3 is not installed" in result.stderr


@pytest.mark.long_after_first
@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"MYDEVICE_SHIMS": "nosuchshim"}, "There is no shim 'nosuchshim'"),
        ({"MYDEVICE_OPTIONS": "fault.alloc=17"}, "no shim 'fault' is loaded"),
        ({"MYDEVICE_OPTIONS": "nosuchkey=1"}, "nosuchkey"),
        ({"MYDEVICE_OPTIONS": "kind=martian"}, "martian"),
    ],
)
def test_wrong_shims_and_options_are_refused(environment, says):
    result = run("import mydevice", **environment)
    assert result.returncode != 0
    assert says in result.stderr


def test_an_explicit_emulate_shim_is_loaded():
    code = "import mydevice, torch; print(torch.ones(3, device='mydevice').cpu().sum().item())"
    result = run(code, MYDEVICE_SHIMS="emulate")
    assert result.stdout.strip() == "3.0", result.stderr


def test_a_shim_that_is_not_there_is_a_shims_matter():
    result = run("import mydevice", MYDEVICE_SHIMS="/no/such/libshim.so")
    assert "There is no file '/no/such/libshim.so'. Set MYDEVICE_SHIMS to names" in result.stderr
    assert "MYDEVICE_DRIVER" not in result.stderr


def test_a_pipe_in_place_of_a_driver_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "libpipe.so", 0o600)
    result = run("import mydevice", MYDEVICE_DRIVER=str(tmp_path / "libpipe.so"))
    assert "libpipe.so' is no regular file" in result.stderr


USE = """
import torch
torch.{name}.Stream()
torch.ones(3, device="{name}").cpu()
torch.{name}.Event().record()
torch.ones(3).pin_memory()
torch.{name}.Event().record()
print("survived")
"""
CANNOT_BE = "-> OK with NULL in place of what it was asked for"


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
def test_a_driver_that_lies_is_refused_by_what_it_lies_about(run_in_process, name, shim, about, says):
    env = {f"{name.upper()}_DRIVER": None, f"{name.upper()}_SHIMS": shim("lies")}
    done = run_in_process(USE.format(name=name), options=f"lies.about={about}", env=env, check=False)
    assert ("survived" in done.stdout) == (about == "nothing")
    for words in says:
        assert words in done.stdout + done.stderr
