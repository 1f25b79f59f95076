"""set_sync_debug_mode reports calls that make the host wait, by name, and no others."""

import threading
import warnings

import pytest
import torch

from torch_backplane import fallback


@pytest.fixture
def mode(device_module):
    """Sets it; back to the default at the end."""
    yield device_module.set_sync_debug_mode
    device_module.set_sync_debug_mode(0)


WAITS = {
    "item": lambda x: x[0].item(),
    "nonzero": lambda x: x.nonzero(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: torch.ones(3).to(x.device),
    "mask": lambda x: x[x > 0],
    "bool": lambda x: bool(x.any()),
    "tolist": lambda x: x.tolist(),
    "pinned, blocking": lambda x: x.copy_(torch.ones(5).pin_memory()),
    "complex to real": lambda x: torch.ones(5).copy_(torch.complex(x, x)),
    "fallback": lambda x: torch.kthvalue(x, 2),
}


@pytest.mark.parametrize("call", WAITS)
def test_E60_a_call_that_waits_is_reported_once_and_refused_before(mode, x, call, name):
    torch.complex(x, x)
    mode("warn")
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        WAITS[call](x)
    ours = [str(w.message) for w in reported if f"called a synchronizing {name} operation" in str(w.message)]
    assert len(ours) == len(set(ours)) >= 1
    assert all("aten::" in text for text in ours)
    mode("error")
    with pytest.raises(RuntimeError, match=f"called a synchronizing {name} operation: aten::"):
        WAITS[call](x)
    mode("default")
    WAITS[call](x)


@pytest.mark.kernels
def test_E60_a_call_that_is_queued_is_not_reported(mode, x, device_module, device):
    host, stream, event = torch.ones(5).pin_memory(), device_module.Stream(), torch.Event(device)
    torch.where(x > 0, x, 0.0), x.fill_(1)  # compiled, if need be
    mode("error")
    x.copy_(host, non_blocking=True)
    host.copy_(x, non_blocking=True)
    (x + 1).sum()
    torch.where(x > 0, x, 0.0)
    stream.wait_stream(device_module.current_stream())
    with device_module.stream(stream):
        y = x * 2
    y.record_stream(stream)
    event.record()
    event.synchronize()
    device_module.synchronize()
    device_module.empty_cache()
    with pytest.raises(RuntimeError, match="synchronize\\(\\) of a stream"):
        stream.synchronize()


def test_E60_the_operator_is_named(mode, x):
    mode(1)
    with pytest.warns(UserWarning, match=r"aten::nonzero \(") as reported:
        x.nonzero()
    assert reported[0].filename == __file__
    with fallback.policy("cpu"), pytest.warns(UserWarning, match=r"aten::kthvalue \(it runs on the CPU\)"):
        torch.kthvalue(x, 2)


def test_E60_the_mode_holds_in_every_thread(mode, x, device_module):
    assert device_module.get_sync_debug_mode() == 0
    mode("error")
    assert device_module.get_sync_debug_mode() == 2
    caught = []

    def work():
        try:
            x[0].item()
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1
    for wrong in ("loud", 3, -1):
        with pytest.raises(RuntimeError, match="expected"):
            mode(wrong)
    assert device_module.get_sync_debug_mode() == 2


def test_E60_coverage_does_not_end_the_mode(mode, x):
    from backplane_tools.coverage import Coverage

    mode("error")
    with Coverage():
        x.view(-1)
    with pytest.raises(RuntimeError, match="aten::item"):
        x[0].item()
