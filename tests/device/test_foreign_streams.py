"""A driver without stream_from_native: streams of this process are found by their number, all others are refused."""

import os
import subprocess
from pathlib import Path

import pytest

import backplane_sdk

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    path = tmp_path_factory.mktemp("foreign") / "libnowrapping.so"
    source = Path(__file__).parent / "drivers" / "no_wrapping.c"
    include = f"-I{backplane_sdk.include_dir()}"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-shared", "-fPIC", include, str(source), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


def test_a_number_is_never_a_handle(run_in_process, name, shim):
    code = f"""
    import torch
    m = torch.{name}
    s = m.Stream()
    assert m.ExternalStream(s.native_handle) == s
    assert m.ExternalStream(0) == m.default_stream()
    x = torch.ones(8, device="{name}")
    assert torch.from_dlpack(x.__dlpack__(stream=s.native_handle)).sum().item() == 8
    for use in (m.ExternalStream, lambda number: x.__dlpack__(stream=number)):
        try:
            use(0x7770)
        except NotImplementedError as error:
            assert "0x7770 is not a stream of this process" in str(error), error
            assert "no stream_from_native" in str(error), error
        else:
            raise AssertionError(use)
    """
    run_in_process(code, env={f"{name.upper()}_SHIMS": str(shim)})


def test_texts_without_an_end_are_cut(run_in_process, name, shim):
    code = f"""
    import torch
    p = torch.{name}.get_device_properties()
    assert p.name == "n" * 127, p.name
    assert p.vendor == "v" * 63, p.vendor
    assert p.driver_version == "\\ufffd" * 63, p.driver_version
    repr(p)
    """
    run_in_process(code, env={f"{name.upper()}_SHIMS": str(shim)})


def test_an_error_in_another_encoding_keeps_its_words(run_in_process, name, shim):
    code = f"""
    import torch
    try:
        torch.empty(1 << 41, dtype=torch.uint8, device="{name}")
    except Exception as error:
        assert type(error) is ValueError, error
        assert "Ger\\ufffdt voll, \\ufffd\\ufffd" in str(error), error
    else:
        raise AssertionError
    """
    run_in_process(code, options="memory=4TiB", env={f"{name.upper()}_SHIMS": str(shim)})
