"""Calls of a compiled graph as replays of recorded ones: what ``mode="reduce-overhead"`` requests.

torch's CUDA graph trees record for CUDA only; this takes their place in the modules that are generated for the device.
The first call of a graph, and of each set of sizes, runs kernel by kernel. The second is recorded. Later ones replay.

Inputs: parameters, results of another recording and what the graph writes are used at their addresses, and the graph
is recorded again for other addresses. All other inputs are copied to memory of the recording before a replay.

Results alias memory of the recording, so they must be gone when it is replayed. If some are not, such as a loss, they
are first copied to memory of their own; if most are not, such as saved tensors of other layers, the graph is recorded a
second time, in another pool. So, unlike torch's, a result is not overwritten while the program has it, and no step has
to be marked.

Threads: each has its own recordings for each of its streams.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch
from torch._inductor import config
from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter
from torch.multiprocessing.reductions import StorageWeakRef

from torch_backplane import _backend, driver
from torch_backplane.compat import inductor
from torch_backplane.device.graphs import CUDAGraph
from torch_backplane.device.memory import empty_cache
from torch_backplane.device.streams import Stream, StreamContext

_POOLS = {"inference": 2, "forward": 64, "backward": 64}
"""Of a graph, for results that exist at the same time: in training those of all layers that share it do."""
_RECORDINGS = 64
"""In a pool: of different sizes, and of different addresses. The least recent one is dropped."""
_SEEN = 4096
"""Sets of sizes that are remembered until they are recorded."""
_ATTEMPTS = 100
"""To record a backward graph: the first calls of those that layers share come before their forward graphs' second."""

Call = Callable[[list[Any]], Sequence[Any]]

_known: dict[int, StorageWeakRef] = {}
"""Storages that backward graphs use as they are: parameters, buffers, numbers on the CPU that an operator returned."""
_capturing = threading.Lock()


class _NotYet(Exception):
    """A call cannot be recorded, unless a forward graph that it follows is recorded first."""


@dataclass(eq=False)
class _Recording:
    """A captured call."""

    graph: CUDAGraph
    results: Any  # the tensors of `returned`, of the last run
    returned: list[Any]
    places: list[int]  # of tensors in `returned`
    tensors: list[int]  # in the arguments
    addresses: Any  # of the arguments in place
    copied: list[int]
    buffers: list[torch.Tensor]  # for those
    bytes: int = 0  # of the results of a run

    def fits(self, arguments: list[Any]) -> bool:
        return _backend.C.graphs.are_at(self.addresses, arguments)

    def copies_results(self, arguments: list[Any]) -> bool:
        """Whether it copies what it could use in place: saved tensors of a forward graph that was recorded later."""
        return any(_backend.C.graphs.is_result(arguments[i]) for i in self.copied)

    def run(self, arguments: list[Any]) -> tuple[Any, ...]:
        if self.copied:
            with torch._C._AutoDispatchBelowAutograd():
                torch._foreach_copy_(self.buffers, [_without_repeats(arguments[i]) for i in self.copied])
        self.graph.replay()
        made = _backend.C.graphs.make_results(self.results, [arguments[i] for i in self.tensors])
        self.bytes = self.bytes or _backend.C.graphs.bytes_alive(self.results)
        arguments.clear()
        returned = list(self.returned)
        for place, tensor in zip(self.places, made, strict=True):
            returned[place] = tensor
        return tuple(returned)


@dataclass(eq=False)
class _Pool:
    """Recordings that share memory: the results of only one of them exist at a time."""

    id: tuple[int, int] = field(default_factory=lambda: _backend.C.graphs.new_pool())
    recordings: OrderedDict[Any, list[_Recording]] = field(default_factory=OrderedDict)
    last: _Recording | None = None  # the last one that ran

    def alive(self) -> float:
        """The part of the last results, by bytes, that still exists."""
        if self.last is None or not self.last.bytes:
            return 0
        return _backend.C.graphs.bytes_alive(self.last.results) / self.last.bytes

    def move_out(self) -> None:
        """Copy the last results that still exist to memory of their own."""
        assert self.last is not None
        _backend.C.graphs.move_out(self.last.results)

    def recording(self, key: Any, arguments: list[Any]) -> _Recording | None:
        return next((one for one in self.recordings.get(key, ()) if one.fits(arguments)), None)

    def add(self, key: Any, recording: _Recording) -> None:
        self.recordings.setdefault(key, []).insert(0, recording)
        if sum(map(len, self.recordings.values())) > _RECORDINGS:
            oldest = next(iter(self.recordings))
            del self.recordings[oldest][-1]
            if not self.recordings[oldest]:
                del self.recordings[oldest]


@dataclass(eq=False)
class _Stream:
    """The recordings of a graph on one stream of a thread."""

    pools: list[_Pool] = field(default_factory=list)
    warm: set[Any] = field(default_factory=set)  # keys that have run
    recorded_again: int = 0

    def find(self, key: Any, arguments: list[Any], most: int) -> tuple[_Pool, _Recording | None]:
        """A pool whose memory no result needs, and its recording of the call, if there is one.

        If a small part of a pool's results exists, such as a loss, these are copied; if most do, there is another pool.

        Args:
            key: of the sizes.
            arguments: of the call.
            most: the number of pools.
        """
        unused, least, least_alive = None, None, 1.0
        for pool in self.pools:
            alive = pool.alive()
            if alive == 0:
                if recording := pool.recording(key, arguments):
                    return pool, recording
                unused = unused or pool
            elif least is None or alive < least_alive:
                least, least_alive = pool, alive
        if unused is None and least is not None and (least_alive < 0.5 or len(self.pools) >= most):
            least.move_out()
            return least, least.recording(key, arguments)
        if unused is None:
            unused = _Pool()
            self.pools.append(unused)
        return unused, None


class Replayed:
    """The ``call`` of a generated module, recorded and replayed.

    Args:
        call: takes a list of arguments, which it clears, and returns a sequence.
        fixed: arguments that are parameters or buffers.
        written: arguments that it writes.
        donated: arguments whose memory it may return as another result's.
        sized: whether it takes numbers from the sizes of tensors, in addition to its arguments.
        kind: "inference", "forward" or "backward".
    """

    def __init__(
        self,
        call: Call,
        *,
        fixed: Collection[int],
        written: Collection[int],
        donated: Collection[int],
        sized: bool,
        kind: Literal["inference", "forward", "backward"],
    ) -> None:
        self.call = call
        self.fixed, self.written, self.donated = frozenset(fixed), frozenset(written), frozenset(donated)
        self.sized = sized
        self.pools = _POOLS[kind]
        self.is_backward = kind == "backward"
        self.refused = config.triton.force_cudagraphs_warmup
        self.sizes_to_record = config.triton.cudagraph_capture_sizes
        self.warns_above = config.triton.cudagraph_dynamic_shape_warn_limit
        self.most_recorded_again = config.triton.cudagraph_unexpected_rerecord_limit
        self.warms_up = not config.triton.skip_cudagraph_warmup
        self.waits = config.triton.force_cudagraph_sync
        self.failed = 0
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Drop the recordings. Results that exist keep their memory."""
        self.local = threading.local()

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        tensors = (one for one in arguments if isinstance(one, torch.Tensor))
        tensor = next((one for one in tensors if one.device.type == _backend.device), None)
        if self.refused or tensor is None:
            return self.call(arguments)
        current = _backend.C.streams.current(tensor.device.index)
        if _backend.C.streams.is_capturing(*current):
            return self.call(arguments)
        key = tuple([one for one in arguments if not isinstance(one, torch.Tensor)])
        if self.sizes_to_record is not None and (key[0] if len(key) == 1 else key) not in self.sizes_to_record:
            return self.call(arguments)
        if self.sized:
            key += tuple((one.size(), one.stride()) for one in arguments if isinstance(one, torch.Tensor))
        streams: dict[Any, _Stream] = self.local.__dict__
        stream = streams.get(current) or streams.setdefault(current, _Stream())
        is_warm = key in stream.warm or not self.warms_up
        if len(stream.warm) >= _SEEN:  # a number that changes at each call
            stream.warm.clear()
        stream.warm.add(key)
        has_mode = torch._C._len_torch_dispatch_stack()  # it sees operators; AOTAutograd has one at the first call
        if has_mode or not is_warm:
            return self.call(arguments)
        pool, recording = stream.find(key, arguments, self.pools)
        if recording is None or (self.is_backward and recording.copies_results(arguments)):
            recording = self.record(stream, pool, key, arguments, tensor.device) or recording
        if recording is None:
            return self.call(arguments)
        pool.recordings.move_to_end(key)
        pool.last = recording
        returned = recording.run(arguments)
        if self.waits:
            torch.accelerator.synchronize(tensor.device)
        return returned

    def record(
        self, stream: _Stream, pool: _Pool, key: Any, arguments: list[Any], device: torch.device
    ) -> _Recording | None:
        """Record a call; None if that is not possible."""
        if key in pool.recordings:
            stream.recorded_again += 1
            if stream.recorded_again > self.most_recorded_again:
                return None
        try:
            try:
                recording = self.capture(pool, arguments, device)
            except torch.OutOfMemoryError:
                empty_cache()  # not possible in a capture
                recording = self.capture(pool, arguments, device)
        except Exception as error:  # the call itself raises it again if it is not of the capture
            self.failed += 1
            if not isinstance(error, _NotYet) or self.failed == _ATTEMPTS:
                self.refused = True
                skipped(str(error))
            return None
        if key not in pool.recordings and len(pool.recordings) == self.warns_above:
            warnings.warn(
                f"a compiled graph is recorded for more than {self.warns_above} sets of sizes. Each keeps memory: pad "
                "the inputs to a few sizes, or record fixed sizes only "
                "(torch._inductor.config.triton.cudagraph_skip_dynamic_graphs)",
                stacklevel=2,
            )
        pool.add(key, recording)
        return recording

    def capture(self, pool: _Pool, arguments: list[Any], device: torch.device) -> _Recording:
        """Capture a call. Nothing runs on the device."""
        tensors = [i for i, one in enumerate(arguments) if isinstance(one, torch.Tensor)]
        for i in tensors:
            if arguments[i].device != device and not _is_known(arguments[i].untyped_storage()):
                raise _NotYet(f"an argument on {arguments[i].device}, and others on {device}")
        copied = [i for i in tensors if not self.is_in_place(i, arguments[i])]
        graph, given, buffers = CUDAGraph(), list(arguments), []
        with torch.inference_mode(False), torch.no_grad(), _capturing, StreamContext(_capture_stream(device.index)):
            graph.capture_begin(pool.id, capture_error_mode="thread_local")
            try:
                for i in copied:
                    one = arguments[i]
                    given[i] = torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device=device)
                    buffers.append(_without_repeats(given[i]))
                returned = list(self.call(list(given)))
            finally:
                graph.capture_end()
        places = [i for i, one in enumerate(returned) if isinstance(one, torch.Tensor)]
        callers = [None if i in copied and i in self.donated else given[i] for i in tensors]
        results = _backend.C.graphs.results(graph._graph, [returned[i] for i in places], callers)
        for place in places:
            if returned[place].device != device:  # a constant: the host cannot have read an argument
                _know(returned[place].untyped_storage())
            returned[place] = None
        addresses = _backend.C.graphs.addresses([i for i in tensors if i not in copied], arguments)
        return _Recording(graph, results, returned, places, tensors, addresses, copied, buffers)

    def is_in_place(self, i: int, tensor: torch.Tensor) -> bool:
        """Whether a recording uses argument ``i`` at its address."""
        storage = tensor.untyped_storage()
        if i in self.fixed:
            _know(storage)
        is_lazy = tensor.is_conj() or tensor.is_neg()
        must = i in self.written or is_lazy or _overlaps(tensor)
        return must or _is_known(storage) or _backend.C.graphs.is_result(tensor)


def _know(storage: torch.UntypedStorage) -> None:
    if not _is_known(storage):
        _known[storage._cdata] = StorageWeakRef(storage)


def _is_known(storage: torch.UntypedStorage) -> bool:
    known = _known.get(storage._cdata)
    return known is not None and not known.expired()


_all: weakref.WeakSet[Replayed] = weakref.WeakSet()


@inductor.when_graphs_are_reset
def _reset() -> None:
    for one in list(_all):
        one.reset()
    _known.clear()


@cache
def _capture_stream(device: int) -> Stream:
    return Stream(device)


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements share memory, other than those that repeat along a dimension."""
    end = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if stride and size > 1:
            if stride <= end:
                return True
            end += (size - 1) * stride
    return False


@cache
def warn_that_nothing_is_recorded() -> None:
    """Warn once that the driver has no graphs."""
    warnings.warn(
        f"torch.compile's modes reduce-overhead and max-autotune run on {_backend.device} kernel by kernel: its driver "
        'cannot record graphs (bp.graph). mode="max-autotune-no-cudagraphs", or none, does not request them',
        stacklevel=2,
    )


def replayed(call: Call, **facts: Any) -> Call:
    """Let a generated module's ``call`` be replayed; ``facts`` are those of :class:`Replayed`."""
    if "graph" not in driver.info().capabilities:
        warn_that_nothing_is_recorded()
        return call
    return Replayed(call, **facts)


def skipped(reason: str) -> None:
    """Report that a graph is not recorded, as torch does: a line in the log, a counter, or an error if that is set."""
    log_cudagraph_skip_and_bump_counter(f"skipping cudagraphs due to {reason}")
