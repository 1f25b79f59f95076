"""Snapshots and the history of device memory, for PyTorch's memory viewer."""

from __future__ import annotations

import gc
import itertools
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch.cuda import _memory_viz

from torch_backplane import _backend
from torch_backplane.device._utils import Device, _checked


def _taken(with_events: bool) -> dict[str, Any]:
    """The snapshot as torch's keys have it. Python's collector would visit its objects again and again as they grow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _backend.C.history.snapshot(with_events)
    finally:
        if was_enabled:
            gc.enable()


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """All segments of all devices with their blocks, under the keys of ``torch.cuda.memory_snapshot``.

    Args:
        mempool_id: only the segments of that pool; None is all.
        include_traces: whether stacks that :func:`_record_memory_history` recorded are in ``frames``.
    """
    segments: list[dict[str, Any]] = _taken(False)["segments"]
    chosen = [segment for segment in segments if mempool_id is None or segment["segment_pool_id"] == tuple(mempool_id)]
    if not include_traces:
        for part in itertools.chain(chosen, *(segment["blocks"] for segment in chosen)):
            part["frames"] = []
    return chosen


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """What PyTorch's memory viewer (pytorch.org/memory_viz) and ``torch.cuda._memory_viz`` read.

    Args:
        device: only the segments and events of this device; None is all.
        augment_with_fx_traces: whether frames in code that FX generated get ``fx_node_op``, ``fx_node_name`` and
            ``fx_original_trace``, the lines of the model's source; available in the process that compiled it.

    Returns:
        ``segments``; ``device_traces``, the events that :func:`_record_memory_history` recorded, one list per device;
        ``allocator_settings``; ``external_annotations``, which is empty.
    """
    index = None if device is None else _checked(device)
    snapshot = _taken(True)
    if index is not None:
        snapshot["segments"] = [segment for segment in snapshot["segments"] if segment["device"] == index]
        snapshot["device_traces"] = [trace if i == index else [] for i, trace in enumerate(snapshot["device_traces"])]
    settings = _backend.C.memory.allocator_config()
    snapshot["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": settings.pop("text"), **settings}
    if augment_with_fx_traces:
        torch._utils._augment_memory_snapshot_stack_traces(snapshot)  # type: ignore[arg-type]
    return snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Write :func:`_snapshot` to a file that PyTorch's memory viewer opens."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)


def _save_segment_usage(filename: str = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    """Draw the contents of each segment as a flame graph; None takes a snapshot.

    As ``torch.cuda.memory``'s, by torch's own code, which runs ``~/.cache/flamegraph.pl`` and downloads it if needed.
    """
    Path(filename).write_text(_memory_viz.segments(_snapshot() if snapshot is None else snapshot))


def _save_memory_usage(filename: str = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    """Draw the memory of each stream as a flame graph; otherwise as :func:`_save_segment_usage`."""
    Path(filename).write_text(_memory_viz.memory(_snapshot() if snapshot is None else snapshot))


_STACKS = {None: 0, "state": 1, "alloc": 2, "all": 3}


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Record the history of device memory, with stacks, for :func:`_snapshot`; as ``torch.cuda.memory``'s.

    Args:
        enabled: ``"all"``: events, and stacks of what is allocated; ``"state"``: only the stacks; None: stop, and
            discard what was recorded.
        context: which stacks: None, none; ``"state"``, of what is allocated; ``"alloc"``, also of the events;
            ``"all"``, also of frees.
        stacks: ``"python"`` or ``"all"``, with C++ frames.
        max_entries: events that are kept per device; older ones are dropped.
        device: ignored, as by ``torch.cuda``: all devices are recorded.
        clear_history: discard the events so far.
        compile_context: not supported.
        global_record_annotations: not supported.
        skip_actions: actions that are not kept: ``alloc``, ``free_requested``, ``free_completed``, ``segment_alloc``,
            ``segment_free``, ``segment_map``, ``segment_unmap``, ``oom``, ``snapshot``.
    """
    if enabled is None:
        _backend.C.history.stop()
        return
    skipped = list(skip_actions or [])
    choices: list[tuple[str, object, Sequence[object]]] = [
        ("enabled", enabled, [None, "state", "all"]),
        ("context", context, list(_STACKS)),
        ("stacks", stacks, ["python", "all"]),
        *(("skip_actions", action, _backend.C.history.actions()) for action in skipped),
    ]
    for name, value, known in choices:
        if value not in known:
            raise ValueError(f"{name}: expected one of {', '.join(map(repr, known))}; got {value!r}")
    if max_entries < 1:
        raise ValueError(f"max_entries: expected at least 1, got {max_entries}")
    for name, wanted in (("compile_context", compile_context), ("annotations", global_record_annotations)):
        if wanted:
            raise NotImplementedError(f"{name} cannot be recorded: torch supports it for CUDA only; leave it False")
    _backend.C.history.record(enabled == "all", _STACKS[context], stacks == "all", max_entries, clear_history, skipped)


def _attach_out_of_memory_observer(observer: Callable[[int, int, int, int], object]) -> None:
    """Call ``observer(device, asked, total, free)``, sizes in bytes, before an out-of-memory error is raised.

    For :func:`_dump_snapshot`, for example. An observer stays to the end of the process; its exceptions are printed.
    """
    _backend.C.history.attach_out_of_memory_observer(observer)
