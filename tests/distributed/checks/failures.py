"""What a rank sees when another one, its device or its program fails: an error within the timeout, never a hang.

Each returns the type and the text of what was raised.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rank import Rank

from checks import exchanged, numbers, same

Outcome = list[str]  # type and text; empty: nothing was raised
LARGE = 32 << 20  # elements: some tens of milliseconds of the network
SLACK = 8.0  # seconds: what a busy machine may take more than a timeout, and a second


def outcome(call: Callable[[], Any], within: float = 2) -> Outcome:
    """Of a call that has a timeout of so many seconds, or must be over at once (0)."""
    begin = time.monotonic()
    try:
        call()
        found = []
    except (Exception, KeyboardInterrupt) as error:  # all that a program can see
        found = [type(error).__name__, str(error)]
    took = time.monotonic() - begin
    assert took < within + 1 + SLACK, f"it took {took:.1f} s, with a timeout of {within} s: {found}"
    return found


def shorten_timeout(w: Rank, seconds: float = 2) -> None:
    """Join the group, which may take long, and then limit each call to so many seconds."""
    dist.all_reduce(tensor(w))
    synchronize(w)
    set_timeout(w, seconds)
    dist.barrier()


def set_timeout(w: Rank, seconds: float) -> None:
    torch.get_device_module(w.device).distributed.set_timeout(None, timedelta(seconds=seconds))


def wait_until_it_is_over(w: Rank) -> None:
    """For what another rank does."""
    while not (w.folder / "over").exists():
        time.sleep(0.05)


def synchronize(w: Rank) -> None:
    torch.get_device_module(w.device).synchronize()


def finish(w: Rank, work: dist.Work) -> None:
    """Until the result is there: the native engine's wait() is over before."""
    work.wait()
    synchronize(w)


def all_reduce(w: Rank) -> None:
    finish(w, dist.all_reduce(tensor(w), async_op=True))


def tensor(w: Rank) -> torch.Tensor:
    return numbers(w.rank).to(w.device)


def is_usable(w: Rank) -> None:
    """The device, when the group that failed is gone; nothing of the group stays."""
    dist.destroy_process_group()
    same(torch.arange(5, device=w.device) + 1, torch.arange(1, 6))
    end = time.monotonic() + SLACK
    while (left := left_behind()) and time.monotonic() < end:  # threads that nothing joins are on their way
        time.sleep(0.05)
    assert not left, left


def left_behind() -> list[str]:
    """Threads, files and mapped memory of groups and of what carries them out. The watch of all native groups stays."""
    left = [name for name in threads() if name.startswith(("ccl_", "gloo", "pt_gloo")) and name != "ccl_watch"]
    files = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            files.append(os.readlink(path))
    left += [file for file in files if file.startswith("socket:")][1:]  # besides the one to the test
    left += [file for file in files if "[eventpoll]" in file]
    files += Path("/proc/self/maps").read_text().splitlines()
    shared = [file for file in files if "/memfd:" in file or "/dev/shm/" in file]
    return left + [file for file in shared if not re.search(r"/memfd:backplane-(sim|kernels|counters)\b(?!-)", file)]


def threads() -> list[str]:
    """Their names."""
    names = []
    for number in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            names.append(Path(f"/proc/self/task/{number}/comm").read_text().strip())
    return names


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def the_peer_dies_before(w: Rank) -> Outcome:
    shorten_timeout(w)
    if w.rank == 1:
        die()
    return of_a_call_now(w)


def of_a_call_now(w: Rank) -> Outcome:
    found = outcome(lambda: all_reduce(w))
    is_usable(w)
    return found


def the_peer_dies_within(w: Rank) -> Outcome:
    """In the middle of a large transfer."""
    shorten_timeout(w, 20)
    x = torch.ones(LARGE, device=w.device)
    work = dist.all_reduce(x, async_op=True)
    if w.rank == 1:
        time.sleep(0.02)
        die()
    found = outcome(lambda: finish(w, work), within=20)
    is_usable(w)
    return found


def the_peer_dies_after(w: Rank) -> Outcome:
    """What was transferred before is there."""
    shorten_timeout(w)
    x = tensor(w)
    dist.all_reduce(x)
    synchronize(w)
    if w.rank == 1:
        die()
    found = of_a_call_now(w)
    same(x, numbers(0) + numbers(1))
    return found


def the_peer_does_not_come(w: Rank) -> list[Outcome]:
    """It is busy for longer than the timeout; later calls raise at once, of the one that comes late, too."""
    shorten_timeout(w)
    if w.rank == 1:
        wait_until_it_is_over(w)
        return [outcome(lambda: all_reduce(w))]
    work = dist.all_reduce(tensor(w), async_op=True)
    future = work.get_future()
    found = [
        outcome(lambda: finish(w, work)),
        outcome(lambda: (future.wait(), synchronize(w)), within=0),
        outcome(lambda: all_reduce(w), within=0),
    ]
    (w.folder / "over").touch()
    is_usable(w)
    return found


def rank_0_does_not_join(w: Rank) -> list[Outcome]:
    """The group's first collective: one rank is not there for longer than the timeout, and comes then."""
    set_timeout(w, 2)
    if w.rank == 0:
        wait_until_it_is_over(w)
        return [outcome(lambda: all_reduce(w))]
    found = [outcome(lambda: all_reduce(w)), outcome(lambda: all_reduce(w), within=0)]
    (w.folder / "over").touch()
    is_usable(w)
    return found


def rank_0_makes_no_id(w: Rank) -> list[Outcome]:
    """The group's first collective and one behind it, minutes before its timeout."""
    set_timeout(w, 600)
    found = [outcome(lambda: all_reduce(w), within=0), outcome(lambda: all_reduce(w), within=0)]
    is_usable(w)
    return found


def another_thread_aborts_while_it_joins(w: Rank) -> list[Outcome]:
    """With minutes left."""
    return while_it_joins(w, lambda: abort(w))


def ctrl_c_while_it_joins(w: Rank) -> list[Outcome]:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return while_it_joins(w, lambda: os.kill(os.getpid(), signal.SIGINT))


def while_it_joins(w: Rank, ends: Callable[[], None]) -> list[Outcome]:
    """Its first collective, and one behind that."""
    set_timeout(w, 600)
    if w.rank == 0:
        wait_until_it_is_over(w)
        return []
    timer = threading.Timer(0.3, ends)
    timer.start()
    found = [outcome(lambda: all_reduce(w), within=0), outcome(lambda: all_reduce(w), within=0)]
    timer.join()
    (w.folder / "over").touch()
    is_usable(w)
    return found


def results_of_a_dead_collective(w: Rank, armed_by: str) -> list[Outcome]:
    """Reads of what it should have written, and of what was computed from that: a value at a time, and as a tensor."""
    shorten_timeout(w)
    x = tensor(w)
    synchronize(w)
    if w.rank == 0:
        Path(armed_by).touch()
    dist.all_reduce(x)
    total = (x + 1).sum()
    found = [outcome(total.item), outcome(x.cpu, within=0)]
    is_usable(w)
    return found


def the_sender_does_not_send(w: Rank) -> Outcome:
    shorten_timeout(w)
    if w.rank == 1:
        wait_until_it_is_over(w)
        return []
    found = outcome(lambda: (dist.recv(tensor(w), 1), synchronize(w)))
    (w.folder / "over").touch()
    is_usable(w)
    return found


def ranks_disagree_while_the_driver_is_asked(w: Rank) -> Outcome:
    """The watchdog of rank 0 asks; rank 1 comes meanwhile, with another call."""
    shorten_timeout(w, seconds=20)
    if w.rank == 0:
        work = dist.all_reduce(tensor(w), async_op=True)
        time.sleep(1)
        return outcome(lambda: finish(w, work), within=20)
    time.sleep(0.3)
    return outcome(lambda: finish(w, dist.broadcast(tensor(w), 1, async_op=True)), within=20)


def the_device_fails(w: Rank, armed_by: str) -> Outcome:
    """In the operator before the collective: the input is never there, or that is an error."""
    shorten_timeout(w)
    x = tensor(w)
    synchronize(w)
    if w.rank == 0:
        Path(armed_by).touch()
        x = x + 1
    return outcome(lambda: finish(w, dist.all_reduce(x, async_op=True)))


def abort(w: Rank) -> None:
    dist.group.WORLD._get_backend(w.device).abort()


def another_thread_aborts(w: Rank) -> list[Outcome]:
    """Twice, while the main thread waits for a peer that does not come, with minutes left."""
    shorten_timeout(w, 600)
    if w.rank == 1:
        wait_until_it_is_over(w)
        abort(w)
        found = [outcome(lambda: all_reduce(w), within=0)]
        is_usable(w)  # Gloo's threads, which cannot be aborted, go when the peer's connection does
        return found
    work = dist.all_reduce(tensor(w), async_op=True)
    timer = threading.Timer(0.3, lambda: (abort(w), abort(w)))
    timer.start()
    found = [outcome(lambda: finish(w, work), within=0), outcome(lambda: all_reduce(w), within=0)]
    timer.join()
    (w.folder / "over").touch()
    is_usable(w)
    return found


def results_of_an_aborted_collective(w: Rank) -> list[Outcome]:
    """The main thread reads what a collective should have written, while another thread ends the group."""
    found = []
    for _ in range(6):
        group = dist.new_group(timeout=timedelta(seconds=600))
        x = tensor(w)
        dist.all_reduce(x, group=group)
        synchronize(w)
        dist.barrier()
        if w.rank == 1:
            dist.barrier()
            continue
        work = dist.all_reduce(x, group=group, async_op=True)
        backend = group._get_backend(w.device)
        timer = threading.Timer(0.1, lambda backend=backend: (backend.abort(), backend.shutdown()))
        timer.start()
        found.append(outcome(lambda work=work, x=x: (work.wait(), x.tolist()), within=0))
        timer.join()
        dist.barrier()
    return found


def the_program_goes_on_after_it_aborts(w: Rank) -> None:
    """With a call in flight, while somebody holds the group: its own waits, and those of a group that it makes then."""
    shorten_timeout(w, 600)
    held = dist.group.WORLD, dist.all_reduce(tensor(w), async_op=True) if w.rank == 0 else None
    dist.barrier()
    dist.distributed_c10d._abort_process_group()
    synchronize(w)
    store = dist.FileStore(str(w.folder / "again"), w.size)
    dist.init_process_group(rank=w.rank, world_size=w.size, store=store)
    x = tensor(w)
    finish(w, dist.all_reduce(x, async_op=True))
    assert torch.equal(x.cpu(), sum(numbers(r) for r in w.ranks))
    del held


def ctrl_c(w: Rank) -> Outcome:
    """While the program waits for a peer that comes late; the collective itself continues, and its result is right."""
    shorten_timeout(w, 600)
    x = tensor(w)
    if w.rank == 1:
        wait_until_it_is_over(w)
        dist.all_reduce(x)
        return []
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work = dist.all_reduce(x, async_op=True)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    found = outcome(lambda: finish(w, work), within=0)
    timer.join()
    (w.folder / "over").touch()
    work.wait()
    same(x, numbers(0) + numbers(1))
    return found


def a_callback_sees_the_error(w: Rank) -> Outcome:
    shorten_timeout(w)
    if w.rank == 1:
        die()
    after = dist.all_reduce(tensor(w), async_op=True).get_future().then(lambda f: f.value())
    return outcome(lambda: (after.wait(), synchronize(w)))


def tasks() -> int:
    """Threads, without the simulated device's: those of its streams stay, as many as its pool has."""
    return len([name for name in threads() if not name.startswith("sim")])


def groups_leave_no_thread(w: Rank) -> None:
    """Nor a file in shared memory."""

    def use() -> None:
        group = dist.new_group()
        dist.all_reduce(tensor(w), group=group)
        out = torch.zeros(5, 3, device=w.device)
        exchanged(dist.P2POp(dist.isend, tensor(w), w.next, group), dist.P2POp(dist.irecv, out, w.previous, group))
        dist.destroy_process_group(group)

    use()
    before = tasks()
    for _ in range(5):
        use()
    while tasks() > before:  # the limit of the case ends it
        time.sleep(0.05)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/" in line]
    assert all(line.endswith("(deleted)") for line in mapped), mapped


def work_is_in_flight(w: Rank) -> None:
    """The program ends without a wait; one rank's work never completes."""
    shorten_timeout(w, 600)
    dist.all_reduce(tensor(w), async_op=True)
    if w.rank == 0:
        dist.all_reduce(tensor(w), async_op=True)


def all_is_done(w: Rank) -> None:
    dist.all_reduce(tensor(w))
