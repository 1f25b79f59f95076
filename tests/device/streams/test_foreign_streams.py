"""A driver without stream_from_native: streams of this process are found by their number, all others are refused."""

import pytest

pytestmark = pytest.mark.once


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
    run_in_process(code, env={f"{name.upper()}_SHIMS": shim("no_wrapping")})


def test_texts_of_a_driver_are_cut_and_decoded(run_in_process, name, shim):
    code = f"""
    import torch
    p = torch.{name}.get_device_properties()
    assert p.name == "n" * 127, p.name
    assert p.vendor == "v" * 63, p.vendor
    assert p.driver_version == "\\ufffd" * 63, p.driver_version
    repr(p)
    try:  # an error in another encoding
        torch.empty(1 << 41, dtype=torch.uint8, device="{name}")
    except Exception as error:
        assert type(error) is ValueError, error
        assert "Ger\\ufffdt voll, \\ufffd\\ufffd" in str(error), error
    else:
        raise AssertionError
    """
    run_in_process(code, options="memory=4TiB", env={f"{name.upper()}_SHIMS": shim("no_wrapping")})
