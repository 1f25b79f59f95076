"""A rank: forked from a server that has imported torch, it joins its process group and runs the checks that it is sent.

The server and the ranks exchange lines of JSON over sockets that world.py creates.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any


@dataclass
class Rank:
    """What a check is given: who it is, and the device that its tensors belong on."""

    rank: int
    size: int
    device: Any  # torch.device
    timeout: timedelta  # the group's
    folder: Path  # of this world alone, the same on all ranks; gone when the world ends
    device_id: bool  # whether the group is bound to the device

    @property
    def is_cpu(self) -> bool:
        """Whether it is Gloo's own collectives that run: the tests of the tests."""
        return self.device.type == "cpu"

    @property
    def ranks(self) -> range:
        return range(self.size)

    @property
    def next(self) -> int:
        return (self.rank + 1) % self.size

    @property
    def previous(self) -> int:
        return (self.rank - 1) % self.size


def serve(control: socket.socket) -> tuple[dict[str, Any], socket.socket]:
    """Fork for each request; in the fork, return it with the socket of the rank.

    What most checks import is imported here once, not by each rank of each world.
    """
    import pytest  # noqa: F401
    import torch._dynamo
    import torch.distributed._functional_collectives  # noqa: F401

    while True:
        message, files, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not message:
            sys.exit(0)
        request = json.loads(message)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            for name in request["imports"]:
                importlib.import_module(name)
            answer = os.fork()
            if answer == 0:
                control.close()
                for number in (1, 2):
                    os.dup2(files[1], number)
                return request, socket.socket(fileno=files[0])
            for file in files:
                os.close(file)
        control.sendall(f"{answer}\n".encode())


def join(request: dict[str, Any]) -> Rank:
    """The process group of the request, by the environment that it brings."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    import torch
    import torch.distributed as dist

    torch._import_device_backends()
    torch.set_num_threads(1)
    dist.set_debug_level_from_env()
    device = torch.device(request["device"])
    if device.type != "cpu":
        module = torch.get_device_module(device)
        device = torch.device(device.type, request["rank"] % module.device_count())
        module.set_device(device)
    timeout = timedelta(seconds=request["timeout"])
    options = {"backend": "gloo"} if device.type == "cpu" else {}
    if request["named"]:
        options["backend"] = f"cpu:gloo,{device.type}:{device.type}ccl"
    if request["device_id"]:
        options["device_id"] = device
    dist.init_process_group(
        rank=request["rank"],
        world_size=request["size"],
        init_method=f"file://{request['folder']}/store",
        timeout=timeout,
        **options,
    )
    return Rank(request["rank"], request["size"], device, timeout, Path(request["folder"]), request["device_id"])


def perform(rank: Rank, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run ``module:function``; its result, or its traceback."""
    import torch

    module, function = name.split(":")
    torch.manual_seed(0)
    try:
        return {"result": getattr(importlib.import_module(module), function)(rank, **arguments)}
    except BaseException:  # reported by the parent
        return {"error": traceback.format_exc()}


def main() -> None:
    """Serve; in a rank, join and perform until the parent closes its end."""
    sys.path.insert(0, str(Path(__file__).parent))
    request, parent = serve(socket.socket(fileno=int(sys.argv[1])))
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        rank = join(request)
        answer: dict[str, Any] = {"result": None}
    except BaseException:  # as above
        answer = {"error": traceback.format_exc()}
    with parent.makefile("rw") as lines:
        lines.write(json.dumps(answer) + "\n")
        lines.flush()
        for line in lines:
            call = json.loads(line)
            lines.write(json.dumps(perform(rank, call["name"], call["arguments"])) + "\n")
            lines.flush()
    import torch.distributed as dist

    if dist.is_initialized() and not request["leave"]:
        dist.destroy_process_group()
        left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if left:
            print("threads are left:", left, file=sys.stderr)
            sys.exit(9)


if __name__ == "__main__":
    main()
