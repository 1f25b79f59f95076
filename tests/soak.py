"""Random work for a while, with everything checked: ``make soak``, or ``python tests/soak.py --seconds 300 --seed 7``.

Threads make tensors, change them on streams of their own, copy them between streams, devices and pinned host memory,
hand them to one another and drop them. What each tensor must hold is known, and is compared. The driver delays its work
at random and refuses every 41st allocation.

That goes on in rounds. After each, nothing of the driver's is alive but the pools of streams and events, which are full
after the first (a shim counts), and the process has the files and threads that it had. What the C library has handed
out does not grow from round to round, but for a cache that is filled once. What the process occupies says less: it is
what one round needs at its peak, for malloc keeps much of it, and is only printed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Piece:
    """A tensor, what each of its elements is, and the stream that wrote it last."""

    tensor: object
    value: int
    stream: object


class Soak:
    """The threads, and what they have found."""

    def __init__(self, name: str, seed: int, until: float) -> None:
        import torch

        self.torch, self.module, self.name = torch, torch.get_device_module(name), name
        self.seed, self.until = seed, until
        self.lock = threading.Lock()
        self.shared: list[Piece] = []
        self.counts: dict[str, int] = {}
        self.failures: list[str] = []

    def run(self, threads: int) -> None:
        workers = [threading.Thread(target=self.work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            while os.path.exists(
                f"/proc/self/task/{worker.native_id}"
            ):  # what is the thread's in C++ goes after join()
                time.sleep(0.001)

    def warm_up(self) -> None:
        """Fill the pools of streams, each with a thread of its own, so that later rounds make none."""
        for device in range(self.module.device_count()):
            for _ in range(32):
                with self.module.Stream(device=device) as stream:
                    self.torch.ones(1, device=f"{self.name}:{device}")
                stream.synchronize()

    def work(self, number: int) -> None:
        chance = random.Random(self.seed * 1000 + number)
        streams = [[self.module.Stream(device=d) for _ in range(3)] for d in range(self.module.device_count())]
        own: list[Piece] = []
        actions = [self.make, self.add, self.copy, self.cross, self.queued, self.check, self.give, self.take, self.drop]
        try:
            while time.monotonic() < self.until and not self.failures:
                action = self.make if not own else chance.choice(actions)
                try:
                    action(chance, streams, own)
                    done = action.__name__
                except self.torch.OutOfMemoryError:
                    done = "out of memory"
                with self.lock:
                    self.counts[done] = self.counts.get(done, 0) + 1
            for piece in own:
                self.compare(piece)
        except Exception as error:
            self.failures.append(f"thread {number}: {type(error).__name__}: {error}")

    def on(self, piece: Piece, stream: object) -> None:
        """Order the stream behind what wrote the piece, and keep its memory until the stream has used it."""
        stream.wait_stream(piece.stream)
        piece.tensor.record_stream(stream)
        piece.stream = stream

    def pick(self, chance: random.Random, streams: list, piece: Piece) -> object:
        stream = chance.choice(streams[piece.tensor.device.index])
        self.on(piece, stream)
        return stream

    def make(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        if len(own) > 40:
            return self.drop(chance, streams, own)
        device = chance.randrange(len(streams))
        stream = chance.choice(streams[device])
        size = int(2 ** chance.uniform(0, 21))
        value = chance.randrange(1000)
        with stream:
            tensor = self.torch.full((size,), value, dtype=self.torch.int32, device=f"{self.name}:{device}")
            own.append(Piece(tensor, value, stream))

    def add(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        piece = chance.choice(own)
        with self.pick(chance, streams, piece):
            piece.tensor.add_(3)
        piece.value += 3

    def copy(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        piece = chance.choice(own)
        with (stream := self.pick(chance, streams, piece)):
            own.append(Piece(piece.tensor.clone(), piece.value, stream))

    def cross(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        piece = chance.choice(own)
        to = chance.randrange(len(streams))
        piece.stream.synchronize()
        stream = chance.choice(streams[to])
        with stream:
            moved = piece.tensor.to(f"{self.name}:{to}", copy=True)
        stream.synchronize()
        own.append(Piece(moved, piece.value, stream))

    def queued(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        piece = chance.choice(own)
        host = self.torch.empty(piece.tensor.shape, dtype=self.torch.int32, pin_memory=True)
        with (stream := self.pick(chance, streams, piece)):
            host.copy_(piece.tensor, non_blocking=True)
            piece.tensor.copy_(host, non_blocking=True)
        stream.synchronize()
        self.expect(host, piece)

    def check(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        self.compare(chance.choice(own))

    def give(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        piece = own.pop(chance.randrange(len(own)))
        with self.lock:
            self.shared.append(piece)

    def take(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        with self.lock:
            if self.shared:
                own.append(self.shared.pop())

    def drop(self, chance: random.Random, streams: list, own: list[Piece]) -> None:
        own.pop(chance.randrange(len(own)))
        if chance.random() < 0.02:
            self.module.empty_cache()

    def compare(self, piece: Piece) -> None:
        piece.stream.synchronize()
        self.expect(piece.tensor.cpu(), piece)

    def expect(self, host: object, piece: Piece) -> None:
        wrong = (host != piece.value).nonzero()
        if len(wrong):
            at = int(wrong[0])
            where = f"{piece.tensor.shape} on {piece.tensor.device}"
            self.failures.append(f"{where} holds {host[at]} at {at}, not {piece.value}")


class Mallinfo2(ctypes.Structure):
    """What malloc tells of itself."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def heap() -> float:
    """MiB that malloc has handed out, in all of its arenas and in mappings of their own."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2
    info = mallinfo2()
    return (info.uordblks + info.hblkhd) / (1 << 20)


def resident() -> float:
    """MiB of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def build_counter(folder: str) -> str:
    """Compile the shim that counts what is alive; its path."""
    import backplane_sdk

    path = f"{folder}/libcount_live.so"
    source = Path(__file__).parent / "device" / "drivers" / "count_live.c"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-shared", "-fPIC", f"-I{backplane_sdk.include_dir()}"]
    subprocess.run([*command, str(source), "-o", path], check=True)
    return path


@dataclass
class Left:
    """What there is after a round."""

    memory: int
    pinned: int
    streams: int
    events: int
    files: int
    threads: int
    heap: float
    resident: float

    @classmethod
    def now(cls, counter: str) -> Left:
        """Count."""
        live = (ctypes.c_int64 * 4).in_dll(ctypes.CDLL(counter), "live")
        sizes = [len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task")]
        return cls(*live, *sizes, heap(), resident())


def growth(rounds: list[Left], most_events: int) -> list[str]:
    """What is there at the end, and was not after the first rounds."""
    found = []
    if not rounds:
        return found
    last = rounds[-1]
    found += [
        f"{getattr(last, kind)} blocks of memory ({kind}) are alive"
        for kind in ("memory", "pinned")
        if getattr(last, kind)
    ]
    for kind in ("streams", "files", "threads"):
        if len({getattr(left, kind) for left in rounds}) > 1:
            found.append(f"the number of {kind} has changed: {[getattr(left, kind) for left in rounds]}")
    if last.events > most_events:
        found.append(f"{last.events} events are alive; the pools hold {most_events} at most")
    # A cache is filled once; what leaks grows in every round. An idle event of a pool takes less than a KiB.
    pairs = itertools.pairwise(rounds[1:])
    steps = [after.heap - before.heap - max(0, after.events - before.events) / 1024 for before, after in pairs]
    if steps and min(steps) > 0.1:
        found.append(f"malloc hands out more with every round: {', '.join(f'{step:.2f}' for step in steps)} MiB")
    return found


def main() -> int:
    """Run it in a few rounds; 0 if nothing was lost and nothing grew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="mydevice")
    parser.add_argument("--options", default="memory=256MiB,delay=300,fault.alloc=41")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(args, build_counter(folder))


def run(args: argparse.Namespace, counter: str) -> int:
    """The rounds, and the report."""
    prefix = args.device.upper()
    os.environ[f"{prefix}_SHIMS"] = f"{os.environ.get(f'{prefix}_SHIMS', 'fault')},{counter}"
    os.environ.setdefault(f"{prefix}_OPTIONS", f"{args.options},seed={args.seed}")
    rounds: list[Left] = []
    counts: dict[str, int] = {}
    for turn in range(args.rounds):
        soak = Soak(args.device, args.seed + turn * 100, time.monotonic() + args.seconds / args.rounds)
        soak.warm_up()
        soak.run(args.threads)
        soak.shared.clear()
        module, failures = soak.module, soak.failures
        for key, count in soak.counts.items():
            counts[key] = counts.get(key, 0) + count
        del soak
        gc.collect()
        for device in range(module.device_count()):
            module.synchronize(device)
        module.empty_cache()
        from torch_backplane import compat

        compat.empty_host_cache()
        for device in range(module.device_count()):
            if left := module.memory_allocated(device) + module.memory_reserved(device):
                failures.append(f"{left} bytes of device {device} are not back")
        ctypes.CDLL(None).malloc_trim(0)
        rounds.append(Left.now(counter))
        print(f"round {turn + 1}: {rounds[-1]}", flush=True)
        if failures:
            break
    failures += growth(rounds, 1024 * module.device_count() + 64)
    print(", ".join(f"{count} {key}" for key, count in sorted(counts.items())))
    for failure in failures:
        print("FAIL", failure)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
