"""Several processes on one device at once: each computes right values, and the death of one harms no other."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.once

# Reads a number of rounds from each line of its input, and prints a line for each round. It ends with its input.
WORKER = """
import sys, torch
seed, device = int(sys.argv[1]), sys.argv[2]
module = torch.get_device_module(device)
print(module.device_count(), module.get_device_properties(0).uuid, flush=True)
keep = torch.full((1 << 16,), float(seed), device=device)
for line in sys.stdin:
    for i in range(int(line)):
        host = torch.arange(1 << 16, dtype=torch.float32).remainder(97).add(seed + i)
        a = host.to(device)
        b = torch.empty_like(a).copy_(a, non_blocking=True)
        c = torch.stack((a + b, a * 2)).sum(0) + keep - seed
        back = c.cpu()
        right = torch.equal(back, host * 4) and keep.sum().item() == seed * keep.numel()
        print("right" if right else f"wrong in round {i}: {back}", flush=True)
"""


class Worker:
    """A process that uses the device, and prints its results."""

    def __init__(self, seed, device):
        command = [sys.executable, "-c", WORKER, str(seed), device]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, rounds):
        self.process.stdin.write(f"{rounds}\n")
        self.process.stdin.flush()

    def line(self):
        return self.process.stdout.readline().strip()

    def results(self, rounds):
        return {self.line() for _ in range(rounds)}

    def end(self):
        """The rest of its output, and its status."""
        rest, _ = self.process.communicate(timeout=100)
        return rest, self.process.returncode


@contextmanager
def workers(device, count):
    """Started workers."""
    started = []
    try:
        for seed in range(1, count + 1):
            started.append(Worker(seed, device))
        yield started
    finally:
        for worker in started:
            worker.process.kill()
            worker.process.wait()
            worker.process.stdout.close()


def test_each_of_two_processes_gets_its_own_values(name):
    with workers(name, 2) as two:
        uuids = {worker.line() for worker in two}
        assert len(uuids) == 1
        for worker in two:
            worker.start(20)
        assert [worker.results(20) for worker in two] == [{"right"}] * 2
        assert [worker.end() for worker in two] == [("", 0)] * 2


@pytest.mark.long
def test_one_that_is_killed_in_the_middle_harms_no_other(name):
    with workers(name, 3) as (victim, *others):
        for worker in (victim, *others):
            worker.line()
            worker.start(1_000_000 if worker is victim else 10)
        assert victim.line() == "right"
        assert [worker.line() for worker in others] == ["right"] * 2
        victim.process.send_signal(signal.SIGKILL)
        assert victim.process.wait(100) == -signal.SIGKILL
        for worker in others:
            worker.start(10)
        assert [worker.results(19) for worker in others] == [{"right"}] * 2
        assert [worker.end() for worker in others] == [("", 0)] * 2
    with workers(name, 1) as (later,):
        later.line()
        later.start(1)
        assert later.line() == "right"


def test_a_forked_process_behaves_as_a_fresh_one(run_in_process, name):
    """Its arguments, its module, its end by the interpreter, by a signal, by an error and at the time limit."""
    code = f"""
        import atexit, sys, torch
        atexit.register(print, "the end")
        names = sorted(name for name in globals() if name[0] != "_")
        print(sys.argv, __name__, sys.stdin.read(), names, torch.{name}.device_count())
    """
    done = run_in_process(code, options="devices=3")
    assert done.stdout.splitlines() == ["['-c'] __main__  ['atexit', 'sys', 'torch'] 3", "the end"]
    assert run_in_process("import os; os.abort()", check=False).returncode == -signal.SIGABRT
    failed = run_in_process("1 / 0", check=False)
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")
    with pytest.raises(subprocess.TimeoutExpired):
        run_in_process("import time; time.sleep(60)", timeout=0.5)
    assert run_in_process("print(1)", env={"PYTHONHASHSEED": "3"}).stdout == "1\n"  # a fresh one
    assert run_in_process("print(2)").stdout == "2\n"
