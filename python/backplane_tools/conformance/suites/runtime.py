"""Devices, streams, events, copies, memory and random numbers, as every PyTorch user takes them for granted."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from backplane_tools.conformance.checks import DTYPES, Checks, FunctionSuite, close, equal, expect, raises, skip

__all__ = ["RuntimeSuite"]

checks = Checks()
N = 1 << 16


class RuntimeSuite(FunctionSuite):
    """One process, one device, and a second one where there is one."""

    name = "runtime"
    checks = checks


def module_of(device: torch.device) -> Any:
    """``torch.<device>``."""
    return torch.get_device_module(device.type)


def second(device: torch.device) -> torch.device:
    """Another device; skips where there is none."""
    count = module_of(device).device_count()
    if count < 2:
        skip("one device")
    return torch.device(device.type, ((device.index or 0) + 1) % count)


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function returns in a thread of its own."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    expect(results, "the thread raised; its traceback is on the standard error")
    return results[0]


@checks.case("device.count")
def device_count(device: torch.device) -> None:
    count = module_of(device).device_count()
    expect(count > 0 and module_of(device).is_available(), f"{count} devices")
    equal(torch.accelerator.device_count(), count, "torch.accelerator.device_count()")
    equal(torch.accelerator.current_accelerator(), torch.device(device.type), "the accelerator")


@checks.case("device.properties")
def device_properties(device: torch.device) -> None:
    properties = module_of(device).get_device_properties(device)
    expect(properties.name, "the device has no name")
    expect(properties.total_memory > 0, f"total_memory is {properties.total_memory}")


@checks.case("device.current")
def device_current(device: torch.device) -> None:
    module, other = module_of(device), second(device)
    module.set_device(other)
    equal(module.current_device(), other.index, "current_device() after set_device")
    equal(torch.empty(1, device=device.type).device, other, "the device of a tensor without an index")
    with module.device(device):
        equal(module.current_device(), device.index, "current_device() in the block")
    equal(module.current_device(), other.index, "current_device() after the block")


@checks.case("device.current_after_error")
def device_current_after_error(device: torch.device) -> None:
    module, other = module_of(device), second(device)
    with raises(ValueError, "stop", "the block"), module.device(other):
        raise ValueError("stop")
    equal(module.current_device(), device.index, "current_device() after a block that raised")


@checks.case("device.current_of_thread")
def device_current_of_thread(device: torch.device) -> None:
    module, other = module_of(device), second(device)
    module.set_device(other)
    equal(in_thread(module.current_device), 0, "current_device() in a new thread")
    in_thread(lambda: module.set_device(device))
    equal(module.current_device(), other.index, "current_device() after another thread set its own")


@checks.case("device.invalid")
def device_invalid(device: torch.device) -> None:
    count = module_of(device).device_count()
    with raises(RuntimeError, str(count), f"a tensor on {device.type}:{count}"):
        torch.empty(1, device=f"{device.type}:{count}")
    close(torch.ones(3, device=device), torch.ones(3), "the device after that error")


@checks.case("device.printing")
def device_printing(device: torch.device) -> None:
    text = repr(torch.arange(3, device=device))
    equal(text, f"tensor([0, 1, 2], device='{device}')", "repr")


@checks.case("stream.order")
def stream_order(device: torch.device) -> None:
    stream = module_of(device).Stream(device)
    with stream:
        x = torch.zeros(N, device=device)
        for i in range(50):
            x.mul_(2).add_(i % 3)
    stream.synchronize()
    wanted = torch.zeros(N)
    for i in range(50):
        wanted.mul_(2).add_(i % 3)
    close(x, wanted)


@checks.case("stream.context")
def stream_context(device: torch.device) -> None:
    module = module_of(device)
    before = module.current_stream(device)
    stream = module.Stream(device)
    with module.stream(stream):
        equal(module.current_stream(device), stream, "the current stream in the block")
        expect(in_thread(lambda: module.current_stream(device)) != stream, "another thread has this thread's stream")
    equal(module.current_stream(device), before, "the current stream after the block")


@checks.case("stream.query")
def stream_query(device: torch.device) -> None:
    stream = module_of(device).Stream(device)
    with stream:
        torch.ones(N, device=device).exp_()
    stream.synchronize()
    expect(stream.query(), "query() is False after synchronize()")


@checks.case("stream.wait_stream")
def stream_wait_stream(device: torch.device) -> None:
    module = module_of(device)
    producer, consumer = module.Stream(device), module.Stream(device)
    x = torch.zeros(N, device=device)
    producer.wait_stream(module.current_stream(device))
    for i in range(20):
        with module.stream(producer):
            x.add_(1)
        consumer.wait_stream(producer)
        with module.stream(consumer):
            y = x + 0
        producer.wait_stream(consumer)
        module.current_stream(device).wait_stream(consumer)
        close(y, torch.full((N,), float(i + 1)), f"round {i}")


@checks.case("stream.wait_event")
def stream_wait_event(device: torch.device) -> None:
    module = module_of(device)
    producer, consumer = module.Stream(device), module.Stream(device)
    ready = module.Event()
    with module.stream(producer):
        x = torch.arange(N, device=device).float()
        ready.record(producer)
    with module.stream(consumer):
        consumer.wait_event(ready)
        y = x * 2
    consumer.synchronize()
    close(y, torch.arange(N).float() * 2)


@checks.case("stream.record_stream")
def stream_record_stream(device: torch.device) -> None:
    module = module_of(device)
    side = module.Stream(device)
    for i in range(20):
        x = torch.full((N,), float(i), device=device)
        side.wait_stream(module.current_stream(device))
        with module.stream(side):
            y = x.exp().log() + x
        x.record_stream(side)
        del x
        torch.full((N,), -1.0, device=device)  # would take the memory, were it free already
        side.synchronize()
        close(y, torch.full((N,), float(i)).exp().log() + i, f"round {i}")


@checks.case("event.query")
def event_query(device: torch.device) -> None:
    module = module_of(device)
    event = module.Event()
    expect(event.query(), "query() of an event that was never recorded")
    torch.ones(N, device=device).exp_()
    event.record()
    event.synchronize()
    expect(event.query(), "query() is False after synchronize()")


@checks.case("event.elapsed_time")
def event_elapsed_time(device: torch.device) -> None:
    module = module_of(device)
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    start.record()
    x = torch.ones(N, device=device)
    for _ in range(10):
        x = x.exp().log()
    end.record()
    end.synchronize()
    expect(start.elapsed_time(end) > 0, f"{start.elapsed_time(end)} ms between two events with work between them")


@checks.case("event.untimed")
def event_untimed(device: torch.device) -> None:
    module = module_of(device)
    start, end = module.Event(), module.Event()
    start.record()
    end.record()
    end.synchronize()
    with raises((RuntimeError, ValueError), "", "elapsed_time of events without enable_timing"):
        start.elapsed_time(end)


@checks.case("copy.dtypes")
def copy_dtypes(device: torch.device) -> None:
    for dtype in DTYPES:
        x = torch.randint(0, 2, (33, 7)).to(dtype)
        y = x.to(device)
        equal((y.device, y.dtype), (device, dtype), "the copy's device and dtype")
        close(y, x, str(dtype))


@checks.case("copy.conversions")
def copy_conversions(device: torch.device) -> None:
    x = torch.linspace(0, 100, 501)
    for dtype in DTYPES:
        close(x.to(device, dtype), x.to(dtype), f"float32 to {dtype}, host to device")
        close(x.to(device).to("cpu", dtype), x.to(dtype), f"float32 to {dtype}, device to host")
        close(x.to(device).to(dtype), x.to(dtype), f"float32 to {dtype}, on the device")


@checks.case("copy.strides")
def copy_strides(device: torch.device) -> None:
    x = torch.randn(5, 6, 7)
    views: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "transposed": lambda t: t.transpose(0, 2),
        "sliced": lambda t: t[1:, ::2, 3:],
        "expanded": lambda t: t[:1].expand(4, 6, 7),
        "flipped": lambda t: t.flip(1),
        "empty": lambda t: t[:0],
        "scalar": lambda t: t[0, 0, 0],
    }
    for name, view in views.items():
        close(view(x).to(device), view(x), f"{name}, host to device")
        close(view(x.to(device)), view(x), f"{name}, device to host")
        there = torch.zeros(view(x).shape, device=device)
        close(there.copy_(view(x.to(device))), view(x), f"{name}, on the device")
    y = torch.zeros(7, 6, 5, device=device)
    y.transpose(0, 2).copy_(x)
    close(y, x.transpose(0, 2).contiguous(), "into a transposed view")


@checks.case("copy.memory_formats")
def copy_memory_formats(device: torch.device) -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = x.to(device)
    equal(y.stride(), x.stride(), "the strides of a channels_last copy")
    close(y, x)


@checks.case("copy.pinned")
def copy_pinned(device: torch.device) -> None:
    x = torch.randn(N).pin_memory()
    expect(x.is_pinned(), "is_pinned() is False for pinned memory")
    y = x.to(device, non_blocking=True)
    back = torch.empty(N).pin_memory()
    back.copy_(y, non_blocking=True)
    module_of(device).synchronize()
    close(back, x)


@checks.case("copy.pageable_source_is_free")
def copy_pageable_source_is_free(device: torch.device) -> None:
    x = torch.ones(N)
    y = torch.empty(N, device=device)
    y.copy_(x, non_blocking=True)
    x.zero_()  # pageable memory has been read when copy_ returns
    close(y, torch.ones(N))


@checks.case("copy.between_devices")
def copy_between_devices(device: torch.device) -> None:
    other = second(device)
    x = torch.randn(N)
    there = x.to(device).to(other)
    equal(there.device, other, "the copy's device")
    close(there, x)
    close(there.t().to(device), x, "and back")
    equal(module_of(device).current_device(), device.index, "current_device() after the copies")


@checks.case("memory.statistics")
def memory_statistics(device: torch.device) -> None:
    module = module_of(device)
    before = module.memory_allocated(device)
    x = torch.empty(1 << 22, dtype=torch.uint8, device=device)
    held = module.memory_allocated(device) - before
    expect(held >= 1 << 22, f"4 MiB were allocated, memory_allocated rose by {held}")
    expect(module.memory_reserved(device) >= module.memory_allocated(device), "reserved is less than allocated")
    module.reset_peak_memory_stats(device)
    del x
    equal(module.memory_allocated(device), before, "memory_allocated after the tensor's death")
    expect(module.max_memory_allocated(device) >= before + (1 << 22), "the peak was forgotten")


@checks.case("memory.empty_cache")
def memory_empty_cache(device: torch.device) -> None:
    module = module_of(device)
    x = torch.empty(1 << 26, dtype=torch.uint8, device=device)
    del x
    held = module.memory_reserved(device)
    module.empty_cache()
    expect(module.memory_reserved(device) <= held - (1 << 26), "empty_cache() returned nothing to the driver")


@checks.case("memory.out_of_memory")
def memory_out_of_memory(device: torch.device) -> None:
    total = module_of(device).get_device_properties(device).total_memory
    with raises(torch.OutOfMemoryError, "", "an allocation of twice the device's memory"):
        torch.empty(2 * total, dtype=torch.uint8, device=device)
    close(torch.ones(N, device=device), torch.ones(N), "the device afterwards")


@checks.case("memory.empty_tensors")
def memory_empty_tensors(device: torch.device) -> None:
    x = torch.empty(0, 5, device=device)
    equal((x.numel(), x.sum().item()), (0, 0.0), "an empty tensor's size and sum")
    close(torch.cat([x, torch.ones(1, 5, device=device)]), torch.ones(1, 5))


@checks.case("memory.resize")
def memory_resize(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    x.resize_(1000)
    close(x[:4], torch.arange(4.0), "what was there before resize_")
    out = torch.empty(0, device=device)
    torch.add(x[:4], 1, out=out)
    close(out, torch.arange(4.0) + 1, "out= of the wrong size")


def draw(device: torch.device, generator: torch.Generator | None = None) -> torch.Tensor:
    """Numbers of three distributions."""
    uniform = torch.rand(1000, device=device, generator=generator)
    normal = torch.randn(1000, device=device, generator=generator)
    whole = torch.randint(1 << 20, (1000,), device=device, generator=generator)
    return torch.cat([uniform, normal, whole.float()]).cpu()


@checks.case("random.seed")
def random_seed(device: torch.device) -> None:
    torch.manual_seed(7)
    first = draw(device)
    torch.manual_seed(7)
    close(draw(device), first, "the same seed")
    expect(not torch.equal(draw(device), first), "the second draw equals the first")
    torch.manual_seed(8)
    expect(not torch.equal(draw(device), first), "another seed draws the same")


@checks.case("random.state")
def random_state(device: torch.device) -> None:
    module = module_of(device)
    state = module.get_rng_state(device)
    first = draw(device)
    module.set_rng_state(state, device)
    close(draw(device), first, "after set_rng_state")
    module.set_rng_state(state, device)
    with torch.random.fork_rng([device.index], device_type=device.type):
        draw(device)
    close(draw(device), first, "after fork_rng")


@checks.case("random.generator")
def random_generator(device: torch.device) -> None:
    generator = torch.Generator(device).manual_seed(3)
    equal(generator.device, device, "the generator's device")
    state = module_of(device).get_rng_state(device)
    first = draw(device, generator)
    expect(torch.equal(module_of(device).get_rng_state(device), state), "it moved the default generator")
    close(draw(device, generator.manual_seed(3)), first, "the same seed")


@checks.case("random.host_is_apart")
def random_host_is_apart(device: torch.device) -> None:
    state = torch.get_rng_state()
    draw(device)
    torch.nn.functional.dropout(torch.ones(100, device=device))
    expect(torch.equal(torch.get_rng_state(), state), "a draw on the device moved the CPU's generator")


@checks.case("random.distribution")
def random_distribution(device: torch.device) -> None:
    count = 200_000
    uniform = torch.rand(count, device=device).double().cpu()
    expect(uniform.min() >= 0 and uniform.max() < 1, "rand left [0, 1)")
    # Eight standard errors: no seed fails this by chance.
    expect(abs(uniform.mean() - 0.5) < 8 * (1 / 12 / count) ** 0.5, f"the mean of rand is {uniform.mean()}")
    normal = torch.randn(count, device=device).double().cpu()
    expect(abs(normal.mean()) < 8 / count**0.5, f"the mean of randn is {normal.mean()}")
    expect(abs(normal.var() - 1) < 8 * (2 / count) ** 0.5, f"the variance of randn is {normal.var()}")
    expect(torch.equal(torch.randperm(999, device=device).cpu().sort().values, torch.arange(999)), "randperm")


@checks.case("autocast.matmul")
def autocast_matmul(device: torch.device) -> None:
    x = torch.randn(8, 8, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        equal((x @ x).dtype, torch.bfloat16, "the dtype of a matmul under autocast")
        equal((x @ x).softmax(-1).dtype, torch.float32, "the dtype of a softmax under autocast")
    equal((x @ x).dtype, torch.float32, "the dtype after the block")


@checks.case("error.leaves_the_device_usable")
def error_leaves_the_device_usable(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    with raises(RuntimeError, "must match the size", "3 + 4 elements"):
        x + torch.ones(4, device=device)
    with raises(RuntimeError, "same device", "a matmul of a device tensor and a CPU tensor"):
        torch.ones(2, 2, device=device) @ torch.ones(2, 2)
    close(x + x, torch.full((3,), 2.0))


@checks.case("thread.parallel_work")
def thread_parallel_work(device: torch.device) -> None:
    results: dict[int, torch.Tensor] = {}

    def work(i: int) -> None:
        with module_of(device).Stream(device):
            x = torch.full((N,), float(i), device=device)
            for _ in range(20):
                x = x * 1 + 1
            results[i] = x.cpu()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(sorted(results), list(range(8)), "the threads that ended well")
    for i, x in results.items():
        close(x, torch.full((N,), i + 20.0), f"thread {i}")


@checks.case("process.data_loader")
def process_data_loader(device: torch.device) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    found = torch.cat([batch.to(device, non_blocking=True) for (batch,) in loader])
    close(found, torch.arange(64.0))


@checks.case("process.fork_is_refused")
def process_fork_is_refused(device: torch.device) -> None:
    torch.ones(1, device=device).sum().item()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # no raise may leave the child
        try:
            torch.ones(1, device=device)
            os.write(write, b"it worked")
        except RuntimeError as error:
            os.write(write, str(error).encode()[:4000])
        except BaseException:
            os.write(write, repr(sys.exc_info()[1]).encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    expect("spawn" in text, f"use in a forked process must be refused, naming the spawn start method; found: {text!r}")
