"""Runs one fault at every place where a program can observe it; test_faults.py starts it with the fault's options.

The device is not opened before the fork, so each place has another process and device, and torch is imported once. A
file in the process's folder arms the fault (``fault.armed_by=armed``). Prints a line of JSON for each place.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

name = sys.argv[1]
module = torch.get_device_module(name)
device = torch.device(name, 0)


class Program:
    """Tensors on the device and in pinned memory, made before the fault."""

    def __init__(self) -> None:
        # Large enough that each result needs memory from the driver.
        self.x = torch.arange(6 << 20, dtype=torch.float32, device=device)
        self.pinned = torch.ones(6 << 20).pin_memory()
        self.weights = torch.ones(6 << 20, device=device, requires_grad=True)
        self.batch = torch.ones(6 << 20, device=device)
        self.small = torch.ones(3, device=device)  # leaves a small segment with free blocks
        self.kept: list[torch.Tensor] = []
        module.synchronize()

    def allocate(self) -> None:
        self.kept += [torch.empty(40 << 20, device=device) for _ in range(2)]

    def kernel(self) -> None:
        self.x + 1
        module.synchronize()

    def fallback(self) -> None:
        torch.fft.rfft(self.x)
        module.synchronize()

    def copy_in(self) -> None:
        self.x.copy_(torch.ones(6 << 20))

    def copy_out(self) -> None:
        self.x.cpu()

    def queued_copy(self) -> None:
        self.x.copy_(self.pinned, non_blocking=True)
        module.synchronize()

    def stream(self) -> None:
        stream = module.Stream()
        with stream:
            self.x.add_(1)
        stream.synchronize()

    def event(self) -> None:
        event = module.Event()
        self.x.add_(1)
        event.record()
        event.synchronize()

    def pin(self) -> None:
        torch.ones(30 << 20).pin_memory()

    def backward(self) -> None:
        (self.weights * self.batch).sum().backward()
        module.synchronize()

    def release(self) -> None:
        del self.batch, self.x
        module.empty_cache()


PLACES: dict[str, Callable[[Program], None]] = {
    key: value for key, value in vars(Program).items() if not key.startswith("_")
}


def run(place: str) -> dict[str, object]:
    """Run the fault at one place, and check what works afterwards."""
    program = Program()
    Path("armed").touch()
    before = module.memory_allocated(0)
    found: dict[str, object] = {"raised": "", "text": ""}
    try:
        PLACES[place](program)
    except Exception as error:  # of any type: it is compared with the page
        found = {"raised": type(error).__name__, "text": str(error)}
        error.__traceback__ = None
    program.kept.clear()
    program.weights.grad = None
    found["leaked"] = max(0, module.memory_allocated(0) - before)
    try:
        found["again"] = float(torch.ones(3, device=device).sum())
    except Exception as error:
        found["again"] = type(error).__name__
    other = torch.device(name, 1)
    found["other"] = (torch.ones(1000, device=other) + 1).sum().item()
    host = Path("state.pt")
    torch.save({"step": 3, "weights": torch.ones(4)}, host)
    found["saved"] = torch.load(host)["step"]
    return found


def main() -> None:
    """Fork a process for each place, and print its result and how it ended."""
    for place in PLACES:
        folder = Path(place)
        folder.mkdir()
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            output = os.open("output", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            Path("found.json").write_text(json.dumps(run(place)))
            return  # ends as programs do
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = json.loads((folder / "found.json").read_text()) if (folder / "found.json").exists() else {}
        print(
            json.dumps({**found, "place": place, "exit": status, "output": (folder / "output").read_text()}), flush=True
        )


if __name__ == "__main__":
    main()
