"""Graphs: a stream's work recorded once and replayed as one, under the names of ``torch.cuda``.

``torch.accelerator.Graph`` is the same under torch's own name. Both need the driver group ``bp.graph``; without it a
capture raises NotImplementedError.
"""

from __future__ import annotations

import gc
from typing import Any, Literal

import torch

from torch_backplane import _backend
from torch_backplane.device._graphed import make_graphed_callables
from torch_backplane.device.devices import is_initialized, synchronize
from torch_backplane.device.memory import empty_cache
from torch_backplane.device.streams import Stream, StreamContext, is_current_stream_capturing

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

Mode = Literal["global", "thread_local", "relaxed"]
_MODES = {"global": 1, "thread_local": 2, "relaxed": 3}


def graph_pool_handle() -> tuple[int, int]:
    """Make the name of a memory pool that several graphs may share: pass it as ``pool`` to each of them."""
    pool: tuple[int, int] = _backend.C.graphs.new_pool()
    return pool


class CUDAGraph:
    """A recording of a stream's work that runs as one. It has the name that code for ``torch.cuda`` uses.

    Memory that is allocated in the capture belongs to the graph until :meth:`reset`: each run writes to the same
    addresses, so read or copy results before the next run. Memory from before the capture must live as long as the
    graph.

    Args:
        keep_graph: keep the recording after the capture, which :meth:`instantiate` or the first :meth:`replay` then
            prepares.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph = _backend.C.graphs.make(keep_graph)

    def capture_begin(
        self,
        pool: tuple[int, int] | None = None,
        capture_error_mode: Mode = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Record the current stream's work from now on. It must not be the default stream; :class:`graph` sets another.

        Args:
            pool: the memory pool to allocate from, of :func:`graph_pool_handle` or another graph's :meth:`pool`; None
                is a private one.
            capture_error_mode: the threads whose waits for the device raise during the capture: all (``"global"``),
                this one (``"thread_local"``) or none (``"relaxed"``). Waits for a capturing stream always raise.
            check_input_liveness: raises NotImplementedError if True.
        """
        if check_input_liveness:
            raise NotImplementedError(
                f"{_backend.device} does not follow a graph's inputs: keep them, and leave check_input_liveness out"
            )
        if capture_error_mode not in _MODES:
            raise ValueError(f"capture_error_mode is {capture_error_mode!r}; it must be one of {', '.join(_MODES)}")
        _backend.C.graphs.capture_begin(self._graph, pool or (0, 0), _MODES[capture_error_mode])

    def capture_end(self) -> None:
        """End the capture. Raises what invalidated it; the streams are then as before, and the graph is empty."""
        _backend.C.graphs.capture_end(self._graph)

    def instantiate(self) -> None:
        """Prepare the recording to run. A no-op if it is prepared."""
        _backend.C.graphs.instantiate(self._graph)

    def replay(self) -> None:
        """Queue one run on the current stream of the graph's device; returns at once. Random numbers advance."""
        _backend.C.graphs.replay(self._graph)

    def reset(self) -> None:
        """Release the recording and its memory. Queued runs complete. A new capture may follow."""
        _backend.C.graphs.reset(self._graph)

    def pool(self) -> tuple[int, int]:
        """The name of the graph's memory pool, for another graph's ``pool``; (0, 0) before the first capture."""
        pool: tuple[int, int] = _backend.C.graphs.pool(self._graph)
        return pool

    def enable_debug_mode(self) -> None:
        """Keep the recording of the next capture for :meth:`debug_dump`."""
        _backend.C.graphs.enable_debug_mode(self._graph)

    def debug_dump(self, debug_path: str) -> None:
        """Write the recording to a file, as the driver prints it: DOT, for graphviz."""
        _backend.C.graphs.debug_dump(self._graph, str(debug_path))

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Accepted for code written for CUDA: every generator of the device that a capture uses takes part.

        Args:
            generator: a generator of this device.
        """
        if generator.device.type != _backend.device:
            raise ValueError(f"expected a generator of {_backend.device}, got one of {generator.device}")


class graph:
    """Context manager that captures the block's work into a graph, on a stream other than the default one.

    Args:
        cuda_graph: the graph, which must be empty.
        pool: as in :meth:`CUDAGraph.capture_begin`.
        stream: the stream that captures; None is a stream shared by all such blocks.
        capture_error_mode: as in :meth:`CUDAGraph.capture_begin`.
        enable_annotations: raises NotImplementedError if True: names of kernels in a profile are CUDA's.
        check_input_liveness: raises NotImplementedError if True.

    Example::

        g = torch.mydevice.CUDAGraph()
        with torch.mydevice.graph(g):
            y = model(x)
        x.copy_(batch)
        g.replay()  # y has the result for the batch
    """

    default_capture_stream: dict[int, Stream] = {}  # noqa: RUF012 (one for all)

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: tuple[int, int] | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: Mode = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if enable_annotations:
            raise NotImplementedError("enable_annotations is for NVIDIA's profiler; leave it out")
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness
        if stream is None:
            index = _backend.C.devices.current()
            if index not in self.default_capture_stream:
                self.default_capture_stream.setdefault(index, Stream(index))
            stream = self.default_capture_stream[index]
        self.capture_stream = stream
        self._stream_context = StreamContext(stream)

    def __enter__(self) -> None:
        """Wait for the device, empty the cache, and begin."""
        synchronize(self.capture_stream.device_index)
        if getattr(torch.compiler.config, "force_cudagraph_gc", False):
            gc.collect()
        empty_cache()
        self._stream_context.__enter__()
        try:
            self.cuda_graph.capture_begin(
                self.pool,
                capture_error_mode=self.capture_error_mode,
                check_input_liveness=self.check_input_liveness,
            )
        except BaseException:
            self._stream_context.__exit__()
            raise

    def __exit__(self, *exc_info: Any) -> None:
        """End the capture, also after an error in the block."""
        try:
            self.cuda_graph.capture_end()
        finally:
            self._stream_context.__exit__()


def refuse_steps_of_the_host(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before each step of any optimizer: refuse to capture one that counts its steps on the host.

    The count would be constant in the graph. Torch checks the same for CUDA and XPU.

    Raises:
        RuntimeError: the current stream is capturing, and a parameter group has ``capturable=False``.
    """
    if torch.compiler.is_compiling() or not is_initialized():
        return
    counts = all(group.get("capturable", True) for group in optimizer.param_groups)
    if not counts and is_current_stream_capturing():
        raise RuntimeError(
            f"a step of {type(optimizer).__name__} whose param_groups' capturable is False cannot be captured: the "
            "number of the step is kept on the host, and would be the same in each replay. Make the optimizer with "
            "capturable=True"
        )
