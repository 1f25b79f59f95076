"""Calls of a compiled graph as replays of recorded ones: what ``mode="reduce-overhead"`` requests.

torch's CUDA graph trees record for CUDA only; this takes their place in the modules that are generated for the device.
The first call of a graph, and of each set of sizes, runs kernel by kernel. The second is recorded. Later ones replay.

Inputs: parameters, results of another recording and what the graph writes are used at their addresses, and the graph
is recorded again for other addresses. All other inputs are copied to memory of the recording before a replay.

Results alias memory of the recording, so they must be gone when it is replayed. If some are not, such as a loss, they
are first copied to memory of their own; if most are not, such as saved tensors of other layers, the graph is recorded a
second time, in another pool. So, unlike torch's, a result is not overwritten while the program has it, and no step has
to be marked. A result that another thread reads has to be cloned: it may be moved meanwhile.

Threads: each has its own recordings for each of its streams.
"""

from __future__ import annotations

import threading
import warnings
import weakref
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
_SIZES = 64
"""Sets of sizes that have recordings in a pool. The one that was recorded first is dropped."""
_SEEN = 4096
"""Sets of sizes that are remembered until they are recorded."""
_ATTEMPTS = 100
"""To record a backward graph: the first calls of those that layers share come before their forward graphs' second."""

Call = Callable[[list[Any]], Sequence[Any]]

_known: dict[int, StorageWeakRef] = {}
"""Storages that backward graphs use as they are: parameters, buffers, numbers on the CPU that an operator returned."""
_capturing = threading.Lock()


class _NotYet(RuntimeError):
    """A call cannot be recorded, unless a forward graph that it follows is recorded first."""


@dataclass(eq=False)
class _Recording:
    """A captured call. Places are those in the lists of arguments and of what it returned."""

    graph: CUDAGraph
    results: Any  # a capsule of GraphResults: of the tensors that it returned
    returned: list[Any]
    result_places: list[int]
    tensor_places: list[int]
    addresses: Any  # a capsule: of the arguments in place
    buffers: dict[int, torch.Tensor]  # of the others
    bytes: int = 0  # of the results of a run

    def fits(self, arguments: list[Any]) -> bool:
        return _backend.C.graphs.are_at(self.addresses, arguments)

    def copies_results(self, arguments: list[Any]) -> bool:
        """Whether it copies what it could use in place: saved tensors of a forward graph that was recorded later."""
        return any(_backend.C.graphs.is_result(arguments[i]) for i in self.buffers)

    def run(self, arguments: list[Any]) -> tuple[Any, ...]:
        if self.buffers:
            with torch._C._AutoDispatchBelowAutograd():
                torch._foreach_copy_(
                    [_without_repeats(one) for one in self.buffers.values()],
                    [_without_repeats(arguments[i]) for i in self.buffers],
                )
        self.graph.replay()
        made = _backend.C.graphs.make_results(self.results, [arguments[i] for i in self.tensor_places])
        self.bytes = self.bytes or _backend.C.graphs.bytes_alive(self.results)
        arguments.clear()
        returned = list(self.returned)
        for place, tensor in zip(self.result_places, made, strict=True):
            returned[place] = tensor
        return tuple(returned)


@dataclass(eq=False)
class _Pool:
    """Recordings that share memory: the results of only one of them exist at a time."""

    id: tuple[int, int] = field(default_factory=lambda: _backend.C.graphs.new_pool())
    recordings: dict[Any, list[_Recording]] = field(default_factory=dict)
    last: _Recording | None = None  # the last one that ran

    def alive(self) -> float:
        """The part of the last results, by bytes, that still exists."""
        if self.last is None or not self.last.bytes:
            return 0
        return _backend.C.graphs.bytes_alive(self.last.results) / self.last.bytes

    def recording(self, key: Any, arguments: list[Any]) -> _Recording | None:
        return next((one for one in self.recordings.get(key, ()) if one.fits(arguments)), None)

    def run(self, recording: _Recording, arguments: list[Any]) -> tuple[Any, ...]:
        """Run a recording, behind other streams that read the last results."""
        if self.last is not None:
            _backend.C.graphs.wait_for_readers(self.last.results)
        self.last = recording
        return recording.run(arguments)


@dataclass(eq=False)
class _Stream:
    """The recordings of a graph on one stream of a thread."""

    pools: list[_Pool] = field(default_factory=list)
    warm: set[Any] = field(default_factory=set)  # keys that have run
    refused: set[Any] = field(default_factory=set)  # keys that are not recorded (again)

    def find(self, key: Any, arguments: list[Any], most_pools: int) -> tuple[_Pool, _Recording | None]:
        """A pool for the call, and its recording there, if there is one.

        A pool without results that exist; one of which a small part does, such as a loss, which will be copied; or, if
        most results of all pools exist, a new one.

        Args:
            key: of the sizes.
            arguments: of the call.
            most_pools: when there are as many, large results are copied, too.
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
        if unused is None and least is not None and (least_alive < 0.5 or len(self.pools) >= most_pools):
            assert least.last is not None
            _backend.C.graphs.move_out(least.last.results)  # now: an argument may be one of them
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
        self.most_pools = _POOLS[kind]
        self.is_backward = kind == "backward"
        self.refused = config.triton.force_cudagraphs_warmup
        self.not_yet = 0
        self.sizes_to_record = config.triton.cudagraph_capture_sizes
        self.warns_above = config.triton.cudagraph_dynamic_shape_warn_limit
        self.most_recorded_again = config.triton.cudagraph_unexpected_rerecord_limit
        self.warms_up = not config.triton.skip_cudagraph_warmup
        self.waits = config.triton.force_cudagraph_sync
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
        key = self.key(arguments)
        streams: dict[Any, _Stream] = self.local.__dict__
        if (stream := streams.get(current)) is None:
            stream = streams[current] = _Stream()
        if self.warms_up and key not in stream.warm:
            if len(stream.warm) >= _SEEN:  # a number that changes at each call
                stream.warm.clear()
            stream.warm.add(key)
            return self.call(arguments)
        if torch._C._len_torch_dispatch_stack():  # a mode sees operators; AOTAutograd has one at the first call
            return self.call(arguments)
        pool, recording = stream.find(key, arguments, self.most_pools)
        if recording is None or (self.is_backward and recording.copies_results(arguments)):
            recording = self.record(stream, pool, key, arguments, tensor.device) or recording
        if recording is None:
            return self.call(arguments)
        returned = pool.run(recording, arguments)
        if self.waits:
            torch.accelerator.synchronize(tensor.device)
        return returned

    def key(self, arguments: list[Any]) -> tuple[Any, ...]:
        """What a recording is for: the numbers among the arguments, and sizes."""
        key = tuple([one for one in arguments if not isinstance(one, torch.Tensor)])
        if self.sized:
            key += tuple(one.size() for one in arguments if isinstance(one, torch.Tensor))
            key += tuple(
                one.stride() for one in arguments if isinstance(one, torch.Tensor) and one.layout == torch.strided
            )
        return key

    def record(
        self, stream: _Stream, pool: _Pool, key: Any, arguments: list[Any], device: torch.device
    ) -> _Recording | None:
        """Record a call; None if that is not possible."""
        numbers = tuple([one for one in arguments if not isinstance(one, torch.Tensor)])
        asked = self.sizes_to_record is None or (numbers[0] if len(numbers) == 1 else numbers) in self.sizes_to_record
        if key in stream.refused or not asked:
            return None
        known = pool.recordings.get(key, [])
        if len(known) > self.most_recorded_again:
            stream.refused.add(key)
            skipped(f"inputs that are used in place, at more than {self.most_recorded_again} addresses")
            return None
        try:
            try:
                recording = self.capture(known, pool, arguments, device)
            except torch.OutOfMemoryError:
                empty_cache()  # not possible in a capture
                recording = self.capture(known, pool, arguments, device)
        except _NotYet as error:
            self.not_yet += 1
            if self.not_yet >= _ATTEMPTS or not self.is_backward:
                self.refuse(str(error))
            return None
        except torch.OutOfMemoryError as error:
            stream.refused.add(key)
            skipped(str(error))
            return None
        except RuntimeError as error:  # the core refuses what a graph cannot hold; the call raises any other again
            self.refuse(str(error))
            return None
        if not known and len(pool.recordings) == self.warns_above:
            warnings.warn(
                f"a compiled graph is recorded for more than {self.warns_above} sets of sizes. Each keeps memory: pad "
                "the inputs to a few sizes, or record fixed sizes only "
                "(torch._inductor.config.triton.cudagraph_skip_dynamic_graphs)",
                stacklevel=2,
            )
        pool.recordings.setdefault(key, []).insert(0, recording)
        if len(pool.recordings) > _SIZES:
            del pool.recordings[next(iter(pool.recordings))]
        return recording

    def refuse(self, reason: str) -> None:
        """Run kernel by kernel from now on."""
        self.refused = True
        self.reset()
        skipped(reason)

    def capture(self, known: list[_Recording], pool: _Pool, arguments: list[Any], device: torch.device) -> _Recording:
        """Capture a call. Nothing runs on the device.

        Args:
            known: recordings of the same sizes, whose buffers it can use.
            pool: for its memory.
            arguments: of the call.
            device: of the call.
        """
        tensors = [i for i, one in enumerate(arguments) if isinstance(one, torch.Tensor)]
        for i in tensors:
            if arguments[i].device != device and not _is_known(arguments[i].untyped_storage()):
                raise _NotYet(f"an argument on {arguments[i].device}, and others on {device}")
        copied = [i for i in tensors if not self.is_in_place(i, arguments[i])]
        graph, given, buffers = CUDAGraph(), list(arguments), {}
        with torch.inference_mode(False), torch.no_grad(), _capturing, StreamContext(_capture_stream(device.index)):
            graph.capture_begin(pool.id, capture_error_mode="thread_local")
            try:
                for i in copied:
                    one = arguments[i]
                    buffer = next((of.buffers[i] for of in known if i in of.buffers), None)
                    if buffer is None or (buffer.size(), buffer.stride()) != (one.size(), one.stride()):
                        buffer = _unfilled(one, device)
                    given[i] = buffers[i] = buffer
                returned = list(self.call(list(given)))
            finally:
                graph.capture_end()
        places = [i for i, one in enumerate(returned) if isinstance(one, torch.Tensor)]
        callers = [None if i in buffers and i in self.donated else given[i] for i in tensors]
        results = _backend.C.graphs.results(graph._graph, [returned[i] for i in places], callers)
        for place in places:
            if returned[place].device != device:  # a constant: the host cannot have read an argument
                _know(returned[place].untyped_storage())
            returned[place] = None
        addresses = _backend.C.graphs.addresses([i for i in tensors if i not in buffers], arguments)
        return _Recording(graph, results, returned, places, tensors, addresses, buffers)

    def is_in_place(self, i: int, tensor: torch.Tensor) -> bool:
        """Whether a recording uses argument ``i`` at its address."""
        storage = tensor.untyped_storage()
        if i in self.fixed:
            _know(storage)
        is_lazy = tensor.is_conj() or tensor.is_neg()
        must = i in self.written or is_lazy or _overlaps(tensor)
        return must or _is_known(storage) or _backend.C.graphs.is_result(tensor)


def _know(storage: torch.UntypedStorage) -> None:
    if _is_known(storage):
        return
    if len(_known) % 1024 == 1023:
        for address in [address for address, one in list(_known.items()) if one.expired()]:
            del _known[address]
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


def _unfilled(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    """As ``torch.empty_strided``, which deterministic mode fills: a graph would fill it at each replay."""
    last = sum((size - 1) * stride for size, stride in zip(like.size(), like.stride(), strict=True))
    storage = torch.UntypedStorage((last + 1) * like.itemsize if like.numel() else 0, device=device)
    return torch.empty(0, dtype=like.dtype, device=device).set_(storage, 0, like.size(), like.stride())


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
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
