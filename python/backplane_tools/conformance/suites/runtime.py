"""Devices, streams, events, copies, memory and random numbers: what every PyTorch program relies on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch

from backplane_tools.conformance.checks import DTYPES, FunctionSuite, close, equal, expect, in_threads, raises, second

N = 1 << 16


def draw(device: torch.device, generator: torch.Generator | None = None) -> torch.Tensor:
    """Numbers of three distributions."""
    uniform = torch.rand(1000, device=device, generator=generator)
    normal = torch.randn(1000, device=device, generator=generator)
    whole = torch.randint(1 << 20, (1000,), device=device, generator=generator)
    return torch.cat([uniform, normal, whole.float()]).cpu()


class RuntimeSuite(FunctionSuite):
    """One process, one device, and a second one if there is one."""

    name = "runtime"

    def device__count(self, device: torch.device) -> None:
        count = self.module.device_count()
        expect(count > 0 and self.module.is_available(), f"{count} devices")
        equal(torch.accelerator.device_count(), count, "torch.accelerator.device_count()")
        equal(torch.accelerator.current_accelerator(), torch.device(device.type), "the accelerator")

    def device__properties(self, device: torch.device) -> None:
        properties = self.module.get_device_properties(device)
        expect(properties.name, "the device has no name")
        expect(properties.total_memory > 0, f"total_memory is {properties.total_memory}")

    def device__current(self, device: torch.device) -> None:
        other = second(device)
        self.module.set_device(other)
        equal(self.module.current_device(), other.index, "current_device() after set_device")
        equal(torch.empty(1, device=device.type).device, other, "the device of a tensor without an index")
        with self.module.device(device):
            equal(self.module.current_device(), device.index, "current_device() in the block")
        equal(self.module.current_device(), other.index, "current_device() after the block")

    def device__current_after_error(self, device: torch.device) -> None:
        other = second(device)
        with raises(ValueError, "stop", "the block"), self.module.device(other):
            raise ValueError("stop")
        equal(self.module.current_device(), device.index, "current_device() after a block that raised")

    def device__current_of_thread(self, device: torch.device) -> None:
        other = second(device)
        self.module.set_device(other)
        equal(in_threads(lambda _: self.module.current_device()), [0], "current_device() in a new thread")
        in_threads(lambda _: self.module.set_device(device))
        equal(self.module.current_device(), other.index, "current_device() after another thread set its own")

    def device__invalid(self, device: torch.device) -> None:
        count = self.module.device_count()
        with raises(RuntimeError, str(count), f"a tensor on {device.type}:{count}"):
            torch.empty(1, device=f"{device.type}:{count}")
        close(torch.ones(3, device=device), torch.ones(3), "the device after that error")

    def device__printing(self, device: torch.device) -> None:
        text = repr(torch.arange(3, device=device))
        equal(text, f"tensor([0, 1, 2], device='{device}')", "repr")

    def stream__order(self, device: torch.device) -> None:
        stream = self.module.Stream(device)
        with stream:
            x = torch.zeros(N, device=device)
            for i in range(50):
                x.mul_(2).add_(i % 3)
        stream.synchronize()
        wanted = torch.zeros(N)
        for i in range(50):
            wanted.mul_(2).add_(i % 3)
        close(x, wanted)

    def stream__context(self, device: torch.device) -> None:
        before = self.module.current_stream(device)
        stream = self.module.Stream(device)
        with self.module.stream(stream):
            equal(self.module.current_stream(device), stream, "the current stream in the block")
            (other,) = in_threads(lambda _: self.module.current_stream(device))
            expect(other != stream, "another thread has this thread's stream")
        equal(self.module.current_stream(device), before, "the current stream after the block")

    def stream__query(self, device: torch.device) -> None:
        stream = self.module.Stream(device)
        with stream:
            torch.ones(N, device=device).exp_()
        stream.synchronize()
        expect(stream.query(), "query() is False after synchronize()")

    def stream__wait_stream(self, device: torch.device) -> None:
        producer, consumer = self.module.Stream(device), self.module.Stream(device)
        x = torch.zeros(N, device=device)
        producer.wait_stream(self.module.current_stream(device))
        for i in range(20):
            with self.module.stream(producer):
                x.add_(1)
            consumer.wait_stream(producer)
            with self.module.stream(consumer):
                y = x + 0
            producer.wait_stream(consumer)
            self.module.current_stream(device).wait_stream(consumer)
            close(y, torch.full((N,), float(i + 1)), f"round {i}")

    def stream__wait_event(self, device: torch.device) -> None:
        producer, consumer = self.module.Stream(device), self.module.Stream(device)
        ready = self.module.Event()
        with self.module.stream(producer):
            x = torch.arange(N, device=device).float()
            ready.record(producer)
        with self.module.stream(consumer):
            consumer.wait_event(ready)
            y = x * 2
        consumer.synchronize()
        close(y, torch.arange(N).float() * 2)

    def stream__record_stream(self, device: torch.device) -> None:
        side = self.module.Stream(device)
        for i in range(20):
            x = torch.full((N,), float(i), device=device)
            side.wait_stream(self.module.current_stream(device))
            with self.module.stream(side):
                y = x.exp().log() + x
            x.record_stream(side)
            del x
            torch.full((N,), -1.0, device=device)  # would take the memory, were it free already
            side.synchronize()
            close(y, torch.full((N,), float(i)).exp().log() + i, f"round {i}")

    def event__query(self, device: torch.device) -> None:
        event = self.module.Event()
        expect(event.query(), "query() of an event that was never recorded")
        torch.ones(N, device=device).exp_()
        event.record()
        event.synchronize()
        expect(event.query(), "query() is False after synchronize()")

    def event__elapsed_time(self, device: torch.device) -> None:
        start, end = self.module.Event(enable_timing=True), self.module.Event(enable_timing=True)
        start.record()
        x = torch.ones(N, device=device)
        for _ in range(10):
            x = x.exp().log()
        end.record()
        end.synchronize()
        expect(start.elapsed_time(end) > 0, f"{start.elapsed_time(end)} ms between two events with work between them")

    def event__untimed(self, device: torch.device) -> None:
        start, end = self.module.Event(), self.module.Event()
        start.record()
        end.record()
        end.synchronize()
        with raises((RuntimeError, ValueError), "", "elapsed_time of events without enable_timing"):
            start.elapsed_time(end)

    def copy__dtypes(self, device: torch.device) -> None:
        for dtype in DTYPES:
            x = torch.randint(0, 2, (33, 7)).to(dtype)
            y = x.to(device)
            equal((y.device, y.dtype), (device, dtype), "the copy's device and dtype")
            close(y, x, str(dtype))

    def copy__conversions(self, device: torch.device) -> None:
        x = torch.linspace(0, 100, 501)
        for dtype in DTYPES:
            close(x.to(device, dtype), x.to(dtype), f"float32 to {dtype}, host to device")
            close(x.to(device).to("cpu", dtype), x.to(dtype), f"float32 to {dtype}, device to host")
            close(x.to(device).to(dtype), x.to(dtype), f"float32 to {dtype}, on the device")

    def copy__strides(self, device: torch.device) -> None:
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

    def copy__memory_formats(self, device: torch.device) -> None:
        x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        y = x.to(device)
        equal(y.stride(), x.stride(), "the strides of a channels_last copy")
        close(y, x)

    def copy__pinned(self, device: torch.device) -> None:
        x = torch.randn(N).pin_memory()
        expect(x.is_pinned(), "is_pinned() is False for pinned memory")
        y = x.to(device, non_blocking=True)
        back = torch.empty(N).pin_memory()
        back.copy_(y, non_blocking=True)
        self.module.synchronize()
        close(back, x)

    def copy__pageable_source_is_free(self, device: torch.device) -> None:
        x = torch.ones(N)
        y = torch.empty(N, device=device)
        y.copy_(x, non_blocking=True)
        x.zero_()  # pageable memory has been read when copy_ returns
        close(y, torch.ones(N))

    def copy__between_devices(self, device: torch.device) -> None:
        other = second(device)
        x = torch.randn(N)
        there = x.to(device).to(other)
        equal(there.device, other, "the copy's device")
        close(there, x)
        close(there.t().to(device), x, "and back")
        equal(self.module.current_device(), device.index, "current_device() after the copies")

    def memory__statistics(self, device: torch.device) -> None:
        before = self.module.memory_allocated(device)
        x = torch.empty(1 << 22, dtype=torch.uint8, device=device)
        held = self.module.memory_allocated(device) - before
        expect(held >= 1 << 22, f"4 MiB were allocated, memory_allocated rose by {held}")
        expect(
            self.module.memory_reserved(device) >= self.module.memory_allocated(device),
            "reserved is less than allocated",
        )
        self.module.reset_peak_memory_stats(device)
        del x
        equal(self.module.memory_allocated(device), before, "memory_allocated after the tensor's death")
        expect(self.module.max_memory_allocated(device) >= before + (1 << 22), "the peak was forgotten")

    def memory__empty_cache(self, device: torch.device) -> None:
        x = torch.empty(1 << 26, dtype=torch.uint8, device=device)
        del x
        held = self.module.memory_reserved(device)
        self.module.empty_cache()
        expect(self.module.memory_reserved(device) <= held - (1 << 26), "empty_cache() returned nothing to the driver")

    def memory__out_of_memory(self, device: torch.device) -> None:
        total = self.module.get_device_properties(device).total_memory
        with raises(torch.OutOfMemoryError, "", "an allocation of twice the device's memory"):
            torch.empty(2 * total, dtype=torch.uint8, device=device)
        close(torch.ones(N, device=device), torch.ones(N), "the device afterwards")

    def memory__empty_tensors(self, device: torch.device) -> None:
        x = torch.empty(0, 5, device=device)
        equal((x.numel(), x.sum().item()), (0, 0.0), "an empty tensor's size and sum")
        close(torch.cat([x, torch.ones(1, 5, device=device)]), torch.ones(1, 5))

    def memory__resize(self, device: torch.device) -> None:
        x = torch.arange(4.0, device=device)
        x.resize_(1000)
        close(x[:4], torch.arange(4.0), "what was there before resize_")
        out = torch.empty(0, device=device)
        torch.add(x[:4], 1, out=out)
        close(out, torch.arange(4.0) + 1, "out= of the wrong size")

    def random__seed(self, device: torch.device) -> None:
        torch.manual_seed(7)
        first = draw(device)
        torch.manual_seed(7)
        close(draw(device), first, "the same seed")
        expect(not torch.equal(draw(device), first), "the second draw equals the first")
        torch.manual_seed(8)
        expect(not torch.equal(draw(device), first), "another seed draws the same")

    def random__state(self, device: torch.device) -> None:
        state = self.module.get_rng_state(device)
        first = draw(device)
        self.module.set_rng_state(state, device)
        close(draw(device), first, "after set_rng_state")
        self.module.set_rng_state(state, device)
        with torch.random.fork_rng([device.index], device_type=device.type):
            draw(device)
        close(draw(device), first, "after fork_rng")

    def random__generator(self, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(3)
        equal(generator.device, device, "the generator's device")
        state = self.module.get_rng_state(device)
        first = draw(device, generator)
        expect(torch.equal(self.module.get_rng_state(device), state), "it moved the default generator")
        close(draw(device, generator.manual_seed(3)), first, "the same seed")

    def random__host_is_apart(self, device: torch.device) -> None:
        state = torch.get_rng_state()
        draw(device)
        torch.nn.functional.dropout(torch.ones(100, device=device))
        expect(torch.equal(torch.get_rng_state(), state), "a draw on the device moved the CPU's generator")

    def random__distribution(self, device: torch.device) -> None:
        count = 200_000
        uniform = torch.rand(count, device=device).double().cpu()
        expect(uniform.min() >= 0 and uniform.max() < 1, "rand left [0, 1)")
        # Eight standard errors: no seed fails this by chance.
        expect(abs(uniform.mean() - 0.5) < 8 * (1 / 12 / count) ** 0.5, f"the mean of rand is {uniform.mean()}")
        normal = torch.randn(count, device=device).double().cpu()
        expect(abs(normal.mean()) < 8 / count**0.5, f"the mean of randn is {normal.mean()}")
        expect(abs(normal.var() - 1) < 8 * (2 / count) ** 0.5, f"the variance of randn is {normal.var()}")
        expect(torch.equal(torch.randperm(999, device=device).cpu().sort().values, torch.arange(999)), "randperm")

    def autocast__matmul(self, device: torch.device) -> None:
        x = torch.randn(8, 8, device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            equal((x @ x).dtype, torch.bfloat16, "the dtype of a matmul under autocast")
            equal((x @ x).softmax(-1).dtype, torch.float32, "the dtype of a softmax under autocast")
        equal((x @ x).dtype, torch.float32, "the dtype after the block")

    def error__leaves_the_device_usable(self, device: torch.device) -> None:
        x = torch.ones(3, device=device)
        with raises(RuntimeError, "must match the size", "3 + 4 elements"):
            x + torch.ones(4, device=device)
        with raises(RuntimeError, "same device", "a matmul of a device tensor and a CPU tensor"):
            torch.ones(2, 2, device=device) @ torch.ones(2, 2)
        close(x + x, torch.full((3,), 2.0))

    def thread__parallel_work(self, device: torch.device) -> None:
        def work(i: int) -> torch.Tensor:
            with self.module.Stream(device):
                x = torch.full((N,), float(i), device=device)
                for _ in range(20):
                    x = x * 1 + 1
                return x.cpu()

        for i, x in enumerate(in_threads(work, 8)):
            close(x, torch.full((N,), i + 20.0), f"thread {i}")

    def process__data_loader(self, device: torch.device) -> None:
        data = torch.utils.data.TensorDataset(torch.arange(64.0))
        loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
        found = torch.cat([batch.to(device, non_blocking=True) for (batch,) in loader])
        close(found, torch.arange(64.0))

    def process__fork_is_refused(self, device: torch.device) -> None:
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
        expect(
            "spawn" in text, f"use in a forked process must be refused, naming the spawn start method; found: {text!r}"
        )
