"""Random programs on several streams, compared with the same program in sequence on the CPU.

``python stream_graphs.py DEVICE GATE FIRST LAST [--broken]`` runs the programs of the seeds from FIRST up to LAST and
prints how many steps they had; ``--broken`` leaves the waits out and prints how many programs then went wrong.

A program has buffers on the devices and in pinned host memory. A step reads some and writes one, on a stream of its
own choice: an operator into new memory or in place, a copy in any direction, a fill. Before it, the stream is ordered
after the accesses that it conflicts with, by an event, by wait_stream or by the host. Streams are delayed at random,
memory that another stream used is freed at once after record_stream.
"""

import random
import sys

import torch
from gates import Gates

SIZE = 4096


class Program:
    """The device's side and the model of one random program."""

    def __init__(self, seed, name, gates, ordered):
        self.random = random.Random(seed)
        self.name, self.gates, self.ordered = name, gates, ordered
        self.module = torch.get_device_module(name)
        devices = range(min(2, self.module.device_count()))
        self.streams = [self.module.default_stream(index) for index in devices]
        self.streams += [self.module.Stream(device=i, priority=-level) for i in devices for level in range(2)]
        self.model, self.real, self.writer, self.readers = {}, {}, {}, {}
        for number in range(6):
            key = (f"{name}:{number % len(devices)}" if number < 4 else "cpu", number)
            value = torch.arange(SIZE, dtype=torch.float32).add(number).remainder(61)
            self.model[key] = value
            self.real[key] = value.clone().pin_memory() if key[0] == "cpu" else value.to(key[0])
            self.writer[key], self.readers[key] = None, []
        self.steps = 0

    def run(self, steps):
        for _ in range(steps):
            self.step()
        for stream in self.streams:
            stream.synchronize()
        return [key for key, value in self.real.items() if not torch.equal(value.cpu(), self.model[key])]

    def step(self):
        kind = self.random.choice(["new", "new", "inplace", "copy", "copy", "copy", "fill", "temporary"])
        target, a, b = (self.random.choice(list(self.model)) for _ in range(3))
        if kind != "copy":  # computed on one device, from what is on it
            target = self.random.choice([key for key in self.model if key[0] != "cpu"])
            here = [key for key in self.model if key[0] == target[0]]
            a, b = self.random.choice(here), self.random.choice(here)
        elif a == target or (a[0] == target[0] == "cpu"):
            return
        device = target[0] if target[0] != "cpu" else a[0]
        stream = self.random.choice([s for s in self.streams if str(s.device) == device])
        reads = {"new": [a, b], "inplace": [a, target], "copy": [a], "fill": [], "temporary": [a, b]}[kind]
        if self.random.random() < 0.5:
            self.gates.delay(stream, self.random.randrange(20, 400))
        self.order(stream, reads, target)
        with self.module.stream(stream):
            self.compute(kind, stream, target, a, b)
        event = stream.record_event()
        for key in reads:
            self.readers[key].append((stream, event))
        self.writer[target], self.readers[target] = (stream, event), []
        self.steps += 1

    def order(self, stream, reads, target):
        """Wait for the last writer of what is read, and for every access to what is written."""
        before = [self.writer[key] for key in reads] + [self.writer[target], *self.readers[target]]
        for access in before:
            if access is None or access[0] == stream or not self.ordered:
                continue
            how = self.random.randrange(8)
            if how == 0:
                access[1].synchronize()
            elif how < 3:
                stream.wait_stream(access[0])
            else:
                stream.wait_event(access[1])

    def compute(self, kind, stream, target, a, b):
        real, model = self.real, self.model
        if kind == "new":  # the old memory is freed, while other streams may still read it
            self.record_users(target, stream)
            real[target] = real[a] + real[b]
            real[target].mul_(0.5)
            model[target] = (model[a] + model[b]) * 0.5
        elif kind == "inplace":
            real[target].mul_(0.5).add_(real[a])
            model[target] = model[target] * 0.5  # which is model[a], if they are the same
            model[target] = model[target] + model[a]
        elif kind == "copy":
            real[target].copy_(real[a], non_blocking=True)
            model[target] = model[a].clone()
        elif kind == "fill":
            value = float(self.random.randrange(100))
            real[target].fill_(value)
            model[target] = torch.full((SIZE,), value)
        else:  # memory of this stream is used by another one, and freed before that is done
            self.record_users(target, stream)
            temporary = real[a] - real[b]
            other = self.random.choice([s for s in self.streams if s.device == stream.device])
            other.wait_stream(stream)
            with self.module.stream(other):
                self.gates.delay(other, self.random.randrange(20, 200))
                result = temporary * 0.5
                temporary.record_stream(other)
            del temporary
            torch.full((SIZE,), -1.0, device=result.device)  # gets the memory, if it was freed too early
            stream.wait_stream(other)
            result.record_stream(stream)
            real[target] = result
            model[target] = (model[a] - model[b]) * 0.5

    def record_users(self, key, stream):
        """Before memory is replaced, record its last users and the stream of this step, which may read it, too."""
        for access in [*self.readers[key], self.writer[key], (stream, None)]:
            if access is not None:
                self.real[key].record_stream(access[0])


def main():
    name, gate, first, last, *rest = sys.argv[1:]
    gates, wrong, steps = Gates(gate), {}, 0
    for seed in range(int(first), int(last)):
        program = Program(seed, name, gates, ordered="--broken" not in rest)
        if bad := program.run(60):
            wrong[seed] = bad
        steps += program.steps
    print(f"wrong {len(wrong)} steps {steps}" if "--broken" in rest else f"wrong {wrong} steps {steps}")


if __name__ == "__main__":
    main()
