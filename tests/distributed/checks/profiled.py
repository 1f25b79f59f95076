"""What torch.profiler shows of collectives: the backend's range, and the event that tools read their sizes from."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist
from rank import Rank

from checks import check, numbers

OF_GLOO = "Gloo writes another event, or none"


def events(w: Rank, profile: torch.profiler.profile) -> list[dict[str, Any]]:
    """All of a trace."""
    path = w.folder / f"trace{w.rank}.json"
    profile.export_chrome_trace(str(path))
    return json.loads(path.read_text())["traceEvents"]


def recorded(w: Rank, profile: torch.profiler.profile) -> dict[str, list[dict[str, Any]]]:
    """By the collective's name, what torch's events record of each call."""
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events(w, profile):
        if event.get("name") == "record_param_comms":
            found.setdefault(event["args"]["Collective name"], []).append(event["args"])
    return found


def traced(w: Rank, shapes: bool) -> torch.profiler.profile:
    """Three calls."""
    x = numbers(w.rank).to(w.device)
    dist.all_reduce(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=shapes) as profile:
        dist.all_reduce(x)
        dist.all_gather_into_tensor(torch.empty(5 * w.size, 3, device=w.device), x)
        dist.barrier(device_ids=[w.device.index])
    return profile


@check(gloo=OF_GLOO)
def ranges_have_the_backends_name(w: Rank) -> None:
    names = {event.get("name") for event in events(w, traced(w, shapes=False))}
    assert {f"{w.device.type}ccl:{name}" for name in ("all_reduce", "_all_gather_base", "barrier")} <= names


@check(gloo=OF_GLOO)
def sizes_and_ranks_are_recorded(w: Rank) -> None:
    for shapes in (False, True):
        found = recorded(w, traced(w, shapes))
        (reduced,), (gathered,), (barrier,) = (found[name] for name in ("allreduce", "_allgather_base", "barrier"))
        assert (reduced["In msg nelems"], reduced["Out msg nelems"], reduced["dtype"]) == (15, 15, "Float")
        assert (gathered["In msg nelems"], gathered["Out msg nelems"]) == (15, 15 * w.size)
        for one in (reduced, gathered, barrier):
            assert (one["Group size"], one["Global rank start"], one["Global rank stride"]) == (w.size, 0, 1)
            # With DETAIL torch reports the wrapping group only.
            detail = dist.get_debug_level() == dist.DebugLevel.DETAIL
            assert one.get("Process Group Description") == (None if detail else "default_pg")
        assert len(found["wait"]) == 3


@check(gloo=OF_GLOO)
def ranks_of_a_part_are_recorded(w: Rank) -> None:
    """The first and the last rank: evenly spaced."""
    ranks = [0, w.size - 1]
    group = dist.new_group(ranks)
    if w.rank not in ranks:
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(numbers(w.rank).to(w.device), group=group)
    (one,) = recorded(w, profile)["allreduce"]
    assert (one["Global rank start"], one["Global rank stride"]) == (0, w.size - 1)
    dist.destroy_process_group(group)


def reductions_overlap_the_backward(w: Rank) -> None:
    """DDP reduces its first buckets while the device computes other gradients. With compiled kernels, on streams."""
    net = torch.nn.Sequential(*(torch.nn.Linear(256, 256, device=w.device) for _ in range(8)))
    trained = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.2)
    x = torch.ones(256, 256, device=w.device)
    for _ in range(2):
        trained(x).sum().backward()
    with torch.profiler.profile() as profile:
        trained(x).sum().backward()
        torch.accelerator.synchronize()
    on_device = [event for event in events(w, profile) if event.get("cat") in ("kernel", "gpu_memcpy")]

    def spans(name: str) -> list[tuple[float, float]]:
        return [(one["ts"], one["ts"] + one["dur"]) for one in on_device if name in one["name"]]

    reduced = spans(f"{w.device.type}ccl:all_reduce")  # by the links, or through the host
    out, back = spans("Memcpy DtoH"), spans("Memcpy HtoD")
    reduced = reduced or [(begin, end) for (begin, _), (_, end) in zip(sorted(out), sorted(back), strict=True)]
    computed = [span for name in ("matmul", "pointwise", "reduction") for span in spans(name)]
    assert len(reduced) == len(net)
    assert any(begin < stop and start < end for begin, end in reduced for start, stop in computed)
