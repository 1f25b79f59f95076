"""``WarmProcesses``: ``run_in_process`` by a fork of a process that has imported torch, which saves a second each time.

The program finds torch imported and the backend autoloaded; otherwise it runs as in a new process, up to the end of
the interpreter, which deletes the program's and the backend's modules but not torch's: that takes most of the time. A
program whose environment differs in what is read before or while torch is imported (a variable that is not the
device's, PYTHONPATH) gets a new process.
"""

import atexit
import ctypes
import gc
import json
import os
import select
import subprocess
import sys
import tempfile
import textwrap
import types

from torch_backplane.testing import process

# Read after the fork.
READ_LATER = ("PYTEST_CURRENT_TEST", "TORCH_DEVICE_BACKEND_AUTOLOAD")
LARGE = ("torch", "torchgen", "numpy", "sympy", "mpmath")


class WarmProcesses:
    """Called as ``run_in_process``. Owns the server; one caller at a time."""

    def __init__(self, device):
        self.prefix = f"{device.upper()}_"
        self.env = dict(os.environ)
        self.server = None

    def __call__(self, code, *, options=None, env=None, device=None, check=True, timeout=120):
        full = {k: v for k, v in process._environment(options, env, device).items() if v is not None}
        if device is not None or self._fixed(full) != self._fixed(self.env):
            return process.run_in_process(code, options=options, env=env, device=device, check=check, timeout=timeout)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            status = self._run(code, full, out, err, timeout)
            out.seek(0), err.seek(0)
            return process._checked(
                subprocess.CompletedProcess(["python", "-c", code], status, out.read(), err.read()), check
            )

    def _fixed(self, env):
        """The variables that a fork is too late to change."""
        return {k: v for k, v in env.items() if not k.startswith(self.prefix) and k not in READ_LATER}

    def _run(self, code, env, out, err, timeout):
        if self.server is None:
            command = [sys.executable, __file__]
            self.server = subprocess.Popen(
                command,
                env={**self.env, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,  # select() must see every line
            )
        # The server opens the files by this process's descriptors.
        places = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
        request = {"code": textwrap.dedent(code), "env": env, "cwd": os.getcwd(), "out": places[0], "err": places[1]}
        self.server.stdin.write(json.dumps(request).encode() + b"\n")
        pid = int(self.server.stdout.readline())
        if not select.select([self.server.stdout], [], [], timeout)[0]:
            os.kill(pid, 9)
            self.server.stdout.readline()
            raise subprocess.TimeoutExpired(["python", "-c", code], timeout)
        return int(self.server.stdout.readline())

    def close(self):
        """End the server."""
        if self.server is not None:
            self.server.stdin.close()
            self.server.wait()


def keep_modules(kept):
    """Remove these modules from what the interpreter deletes; atexit calls this last."""
    for name in kept:
        sys.modules.pop(name, None)


def serve():
    """Fork for each request, and print its process number and its status; in the fork, return the request."""
    kept = {}
    atexit.register(keep_modules, kept)  # before torch's functions, so after them
    import torch  # noqa: F401

    kept.update((name, module) for name, module in sys.modules.items() if name.partition(".")[0] in LARGE)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    gc.freeze()  # collections in a fork do not write to the pages of these objects
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return request
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    sys.exit(0)


def become(request):
    """Make this process what ``python -c code`` is after ``import torch``; its program, compiled."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for place, flags, number in (
        ("/dev/null", os.O_RDONLY, 0),
        (request["out"], os.O_RDWR, 1),
        (request["err"], os.O_RDWR, 2),
    ):
        file = os.open(place, flags)
        os.dup2(file, number)
        os.close(file)
    sys.argv, sys.path[0] = ["-c"], ""
    sys.modules["__main__"] = types.ModuleType("__main__")
    import torch

    if torch._is_device_backend_autoload_enabled():
        torch._import_device_backends()
    return compile(request["code"], "<string>", "exec")


if __name__ == "__main__":
    program = become(serve())
    exec(program, sys.modules["__main__"].__dict__)  # at this level, so that the interpreter ends as usual
