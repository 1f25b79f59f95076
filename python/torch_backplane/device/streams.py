"""Streams and events: ``torch.Stream`` and ``torch.Event`` of this device, under the names of ``torch.cuda``.

Recording, waiting, querying and synchronizing are torch's own methods; waits release the GIL, and Ctrl-C ends them.
"""

from __future__ import annotations

import ctypes
from typing import Any, cast

import torch

from torch_backplane import _backend
from torch_backplane.device._utils import Device, _get_device_index

__all__ = [
    "Event",
    "ExternalStream",
    "InterprocessEvent",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "is_current_stream_capturing",
    "set_stream",
    "stream",
]


class Stream(torch.Stream):
    """An in-order queue of device work. As a context manager it becomes the current stream.

    Streams are taken from a pool for each priority and live as long as the process; an exhausted pool returns the same
    streams again.

    Args:
        device: the device; None is the current one.
        priority: a smaller number is a higher priority; clamped to :meth:`priority_range`.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Stream:
        """Take a stream of the pool, or the existing one of ``stream_id``, ``device_index`` and ``device_type``."""
        if "stream_id" in kwargs:
            return _existing(cls, **kwargs)
        index = _get_device_index(device, optional=True)
        if torch.compiler.is_dynamo_compiling():  # which supports only torch's own class
            return cast(Stream, torch.Stream(device=torch.device(_backend.device, index), priority=priority))
        return super().__new__(cls, device=torch.device(_backend.device, index), priority=priority)

    @staticmethod
    def priority_range(device: Device = None) -> tuple[int, int]:
        """The (least, greatest) priority of a device; the greatest is the smaller number. Touches no device."""
        properties = _backend.C.devices.properties(_get_device_index(device, optional=True))
        return properties["priority_least"], properties["priority_greatest"]

    @property
    def priority(self) -> int:
        """The priority this stream was made with."""
        return _backend.C.streams.priority(self.stream_id, self.device_index)

    def wait_event(self, event: torch.Event | InterprocessEvent) -> None:
        """Let later work of this stream wait for an event."""
        if isinstance(event, InterprocessEvent):
            event.wait(self)
        else:
            super().wait_event(event)

    def record_event(self, event: Any = None) -> Any:
        """Record an event on this stream, a new one if None, and return it."""
        if isinstance(event, InterprocessEvent):
            event.record(self)
            return event
        return super().record_event(event)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(_backend.C.streams.native_handle(self.stream_id, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.{_backend.device}.Stream device={self.device} stream_id={self.stream_id:#x}>"


class ExternalStream(Stream):
    """A stream that other code made with the vendor's runtime and keeps alive.

    Args:
        stream_ptr: the vendor's stream object as an integer, as ``native_handle`` of a stream is; 0 is the default
            stream.
        device: the device the stream was made on; None is the current one.

    Raises:
        NotImplementedError: the driver cannot use streams of other code.
        ValueError: the driver has no such stream on that device.
    """

    def __new__(cls, stream_ptr: int, device: Device = None, **kwargs: Any) -> ExternalStream:
        """Wrap the native stream, without taking ownership."""
        stream_id, index = _backend.C.streams.external(stream_ptr, _get_device_index(device, optional=True))
        return _stream(cls, stream_id, index)


def _stream(cls: type[Any], stream_id: int, index: int) -> Any:
    return torch.Stream.__new__(cls, stream_id=stream_id, device_index=index, device_type=_device_type())


def _existing(
    cls: type[Any], stream_id: int, device_index: int, device_type: int | None = None, priority: int = 0
) -> Any:
    """The stream that has these numbers; ``priority`` was set when it was made."""
    if device_type is not None and device_type != _device_type():
        raise ValueError(
            f"a stream of {_backend.device} has device_type={_device_type()}, got {device_type}: "
            "pass the stream's own device_type, or leave it out"
        )
    _backend.C.streams.check(stream_id, device_index)
    return _stream(cls, stream_id, device_index)


def _device_type() -> int:
    return int(torch._C._autograd.DeviceType.PrivateUse1.value)


class _EventMeta(type(torch.Event)):  # type: ignore[misc]
    """Makes every ``torch.Event`` of this device an instance of :class:`Event`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == _backend.device


class Event(torch.Event, metaclass=_EventMeta):
    """A point in a stream's work, to wait for, to order other streams, and to measure time.

    Created on a device at the first record; only that device's streams can record it again, streams of any device can
    wait for it. The object is a ``torch.Event``, because torch's own methods accept no instance of a subclass.

    Args:
        enable_timing: whether ``elapsed_time``, in milliseconds, is available.
        blocking: accepted for code written for CUDA; waits always yield the processor and can be interrupted, as with
            True.
        interprocess: whether other processes will use it; the result is an :class:`InterprocessEvent`.
        external: raises NotImplementedError if True: an event that is recorded in a capture is part of the graph.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> torch.Event | InterprocessEvent:
        """Make an event without a record; touches no device."""
        if external:
            raise NotImplementedError(
                f"graphs of {_backend.device} have no external events: what a capture records is part of the graph. "
                "Record it after replay()"
            )
        if interprocess:
            if enable_timing:
                raise ValueError("an event between processes has no timing: leave enable_timing=True out")
            return InterprocessEvent()
        return torch.Event(torch.device(_backend.device), enable_timing=enable_timing, blocking=blocking)

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> InterprocessEvent:  # type: ignore[override]
        """The event of another process's ``ipc_handle()``.

        Args:
            device: the device it was made on.
            handle: the handle in the other process.
        """
        return InterprocessEvent(_backend.C.ipc.open_shared_event(_get_device_index(device, optional=True), handle))


class InterprocessEvent:
    """An event that several processes record and wait for, made by ``Event(interprocess=True)``.

    It has an event's methods and can be sent to another process by ``torch.multiprocessing``. A stream waits for it by
    ``event.wait(stream)`` or :meth:`Stream.wait_event`.
    """

    def __init__(self, shared: Any = None) -> None:
        self._shared = _backend.C.ipc.make_shared_event() if shared is None else shared

    def __repr__(self) -> str:
        state = "uninitialized" if self.device is None else f"interprocess device={self.device}"
        return f"<torch.{_backend.device}.Event {state}>"

    @property
    def device(self) -> torch.device | None:
        """Its device; None before the first record."""
        index = _backend.C.ipc.event_device(self._shared)
        return None if index < 0 else torch.device(_backend.device, index)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Record the event on a stream; None is the current one."""
        stream = current_stream() if stream is None else stream
        _backend.C.ipc.record_event(self._shared, stream.stream_id, stream.device_index)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Let later work of a stream wait for the latest record; None is the current one."""
        stream = current_stream() if stream is None else stream
        _backend.C.ipc.wait_event(self._shared, stream.stream_id, stream.device_index)

    def query(self) -> bool:
        """Whether the latest record is complete."""
        return _backend.C.ipc.query_event(self._shared)

    def synchronize(self) -> None:
        """Wait on the host for the latest record."""
        _backend.C.ipc.synchronize_event(self._shared)

    def ipc_handle(self) -> bytes:
        """Bytes by which another process opens the event. Made on the current device if it was never recorded."""
        device = self.device
        return _backend.C.ipc.export_event(self._shared, -1 if device is None else device.index)


def current_stream(device: Device = None) -> Stream:
    """The calling thread's current stream of a device; None is the current device."""
    index = _get_device_index(device, optional=True)
    if torch.compiler.is_dynamo_compiling():
        return cast(Stream, torch.accelerator.current_stream(torch.device(_backend.device, index)))
    stream: Stream = _stream(Stream, *_backend.C.streams.current(index))
    return stream


def default_stream(device: Device = None) -> Stream:
    """The default stream of a device; None is the current device. Its ``stream_id`` is 0."""
    stream: Stream = _stream(Stream, *_backend.C.streams.default(_get_device_index(device, optional=True)))
    return stream


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """Wrap a stream that other code made with the vendor's runtime and keeps alive.

    Args:
        data_ptr: the vendor's stream object as an integer, as ``native_handle`` of a stream is.
        device: the device it was made on; None is the current one.
    """
    return ExternalStream(data_ptr, device)


def set_stream(stream: torch.Stream | None) -> None:
    """Make ``stream`` the current stream, and its device the current device.

    None is a no-op. Prefer :func:`stream` or ``with s:``.
    """
    if stream is not None:
        _set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """As :func:`set_stream`, with a stream's three numbers. Compiled code calls it."""
    _backend.C.streams.enter(stream_id, device_index, device_type)


class StreamContext:
    """Context manager that makes a stream current, and its device the current device.

    Args:
        stream: the stream; None is a no-op.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[tuple[int, int, int]] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        stream = self.stream
        self._previous.append(_backend.C.streams.enter(stream.stream_id, stream.device_index, stream.device_type))

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is None:
            return
        stream_id, index, device = self._previous.pop()
        _backend.C.streams.exchange(stream_id, index)
        _backend.C.devices.set(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager that makes ``stream`` current; None is a no-op.

    Example::

        s = torch.mydevice.Stream()
        with torch.mydevice.stream(s):
            y = x + 1  # queued on s
    """
    if stream is not None and torch.compiler.is_dynamo_compiling():
        return cast(StreamContext, stream)  # itself a context manager, which Dynamo supports
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """Whether the current stream records into a graph."""
    stream = current_stream()
    return _backend.C.streams.is_capturing(stream.stream_id, stream.device_index)


def _sleep(cycles: int) -> None:
    """Keep the current stream busy, for tests, with work that does nothing.

    Args:
        cycles: how long, in cycles of ``get_device_properties().clock_rate``, or in nanoseconds where that is 0; at
            most a day.

    Raises:
        NotImplementedError: the driver runs no host functions (``bp.host_exec``).
    """
    _backend.C.streams.sleep(cycles)
