"""CPU memory that the fallback allocates is device memory in zero-copy calls, and may be freed anywhere."""

import gc
import threading

import pytest
import torch

from backplane_tools.conformance.checks import in_threads

pytestmark = pytest.mark.requires("zero_copy")
NAMESPACE = "bp_test_fallback_memory"


@pytest.fixture
def keeper(ops):
    """``keep(x)``: a CPU operator that keeps what it allocated beyond its call."""
    kept = []

    def keep(x):
        kept.append(x * 2)
        return kept[-1]

    yield ops.define("keep(Tensor x) -> Tensor", CPU=keep), kept
    kept.clear()


def allocated(device_module):
    device_module.synchronize()
    return device_module.memory_allocated()


def test_results_are_adopted_without_a_copy(device, device_module):
    x = torch.rand(1 << 18, device=device)
    values, _ = torch.sort(x)
    del values, _
    gc.collect()
    before = allocated(device_module)
    device_module.reset_peak_memory_stats()
    values, indices = torch.sort(x)
    results = values.nbytes + indices.nbytes
    assert allocated(device_module) - before == results
    assert device_module.max_memory_allocated() - before < 2 * results  # one copy of each would need as much again
    del values, indices
    assert allocated(device_module) == before


def test_what_an_operator_keeps_is_a_separate_cpu_tensor(device, device_module, keeper):
    keep, kept = keeper
    before = allocated(device_module)
    x = torch.ones(1000, device=device)
    result = keep(x)
    result.zero_()
    device_module.synchronize()
    assert kept[0].device.type == "cpu"
    assert kept[0].sum().item() == 2000  # the result was copied, because the memory has another owner
    del x, result
    ((moved, _),) = in_threads(lambda _: (kept[0] + 1, kept.clear()))  # freed on another thread
    assert moved.sum().item() == 3000
    assert allocated(device_module) == before


def test_threads_outside_of_a_call_get_host_memory(device, device_module):
    stop = threading.Event()
    wrong = []
    before = allocated(device_module)

    def host_work():
        while not stop.is_set():
            t = torch.empty(1 << 16)
            t.fill_(3.0)
            if t.sum().item() != 3.0 * (1 << 16):
                wrong.append(t)

    thread = threading.Thread(target=host_work)
    thread.start()
    x = torch.rand(1 << 12, device=device)
    expected = x.cpu().sort().values
    for _ in range(100):
        assert torch.equal(torch.sort(x).values.cpu(), expected)
    stop.set()
    thread.join()
    assert not wrong
    del x
    assert allocated(device_module) == before


def test_cpu_tensors_keep_their_deleter(device):
    """A copy-on-write clone is made of storages whose deleter is the one that the allocator names."""
    torch.sort(torch.rand(8, device=device))
    x = torch.rand(8)
    clone = torch._lazy_clone(x)
    clone.add_(1)
    assert torch.equal(clone, x + 1)


@pytest.mark.once
def test_a_full_device_is_out_of_memory_only_for_results(printed):
    code = """
        x = torch.rand(1 << 18, device=d)
        expected = x.cpu().sort().values
        hog = []
        try:
            while True:
                hog.append(torch.empty(1 << 20, dtype=torch.uint8, device=d))
        except torch.OutOfMemoryError:
            pass
        print("full")
        try:
            torch.sort(x)
        except torch.OutOfMemoryError:
            print("no results")
        del hog[:1]
        # The scratch memory does not fit, the result does.
        print(torch.linalg.matrix_norm(x.view(512, 512), "nuc").item() > 0)
        del hog
        print(torch.equal(torch.sort(x).values.cpu(), expected))
    """
    assert printed(code, "kind=unified,memory=64MiB").splitlines() == ["full", "no results", "True", "True"]


@pytest.mark.once
def test_memory_that_outlives_the_process_end_and_forks_is_harmless(printed):
    code = """
        import os
        library = torch.library.Library("keeper", "DEF")
        library.define("keep(Tensor x) -> Tensor")
        kept = []
        library.impl("keep", lambda x: kept.append(x * 2) or kept[-1] + 0, "CPU")
        torch.ops.keeper.keep(torch.ones(1000, device=d))
        child = os.fork()
        if child == 0:
            assert kept[0].sum().item() == 2000
            kept.clear()  # frees device memory in a child: nothing
            assert torch.ones(5000).sort().values.sum().item() == 5000
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        __import__("builtins").kept_to_the_end = kept[0]
        print("fine")
    """
    assert printed(code, "kind=unified") == "fine\n"


@pytest.mark.long_after_first
@pytest.mark.once
@pytest.mark.parametrize("setting", ["cpu", "none"])
def test_torchs_allocator_is_replaced_at_import_and_never_later(run_in_process, name, backend_package, setting):
    """torch reads its pointer without a lock, so it is not changed beside threads that allocate."""
    code = f"""
        import ctypes
        import torch
        get = ctypes.CDLL(torch.__path__[0] + "/lib/libc10.so")._ZN3c1015GetCPUAllocatorEv
        get.restype = ctypes.c_void_p
        torchs = get()
        import {backend_package.__name__}
        imported = get()
        torch.ones(8, device="{name}").fill_(2)
        if {setting!r} != "none":
            torch.ones(8, device="{name}").sort()
        print(imported == torchs, get() == imported)
    """
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", f"{name.upper()}_FALLBACK": setting}
    found = run_in_process(code, options="kind=unified", env=env).stdout.split()
    assert found == [str(setting == "none"), "True"]


@pytest.mark.once
def test_freeing_host_memory_takes_no_lock(printed, shim):
    """An address is looked up among the device's blocks without a lock, outside of their range and between them."""
    library = shim("count_locks")
    code = f"""
        import ctypes
        from torch_backplane import _backend
        locks = ctypes.CDLL("{library}").locks_of_this_thread
        def count(call, arguments):
            before = locks()
            for argument in arguments:
                call(argument)
            return locks() - before
        x = torch.rand(1 << 16, device=d)
        torch.sort(x)
        hosts = [torch.empty(256, dtype=torch.uint8) for _ in range(4000)]
        aligned = [h.untyped_storage() for h in hosts if h.data_ptr() % 512 == 0]
        others = [h.untyped_storage() for h in hosts if h.data_ptr() % 512 != 0][: len(aligned)]
        del hosts
        assert len(aligned) > 100
        free = lambda storage: storage.resize_(0)
        assert count(free, aligned) == count(free, others)
        inside = [x.data_ptr() + 512 * i for i in range(1, 101)]
        assert count(_backend.C.memory.block_size, inside) == count(_backend.C.memory.block_size, [512] * 100)
        assert _backend.C.memory.block_size(x.data_ptr()) > 0 == _backend.C.memory.block_size(inside[0])
        print("fine")
    """
    assert printed(code, "kind=unified", env={"LD_PRELOAD": library}) == "fine\n"


@pytest.mark.once
def test_another_allocator_set_later_costs_only_a_copy(printed):
    code = """
        import ctypes
        c10 = ctypes.CDLL(torch.__path__[0] + "/lib/libc10.so")
        get, put = c10._ZN3c1015GetCPUAllocatorEv, c10._ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh
        get.restype = ctypes.c_void_p
        put.argtypes = [ctypes.c_void_p, ctypes.c_uint8]
        torchs = get()
        x = torch.rand(1000, device=d)
        early = torch.sort(x).values
        on_host = torch.rand(1000)
        put(torchs, 0)
        late = torch.sort(x).values
        assert torch.equal(early.cpu(), late.cpu())
        assert torch.equal(torch.erfc(x).cpu(), torch.erfc(x.cpu()))
        del early, late, x, on_host
        print("fine")
    """
    assert printed(code, "kind=unified") == "fine\n"
