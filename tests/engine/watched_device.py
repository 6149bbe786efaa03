"""A CPU that is watched as a CUDA device would be: which stream does what, and who waits.

Everything is computed at once, in the order of the calls, and correct. Beside it each tensor that
would lie on a device has a record, and each stream a vector clock, so that two kinds of fault are
seen that only a real device would show:

    unordered   a stream reads what another one writes, or writes what another one reads, without
                having waited for it; or memory is given back while another stream may use it
    blocking    the host waits for a stream: it reads a number, or copies from memory that is not
                page-locked

A tensor is on the device if it was made with ``device=``, or of one that is. :data:`DEVICE` is
what the engine is told to run on: `"cpu"` to all who ask, but known here from the `"cpu"` that
SGLang writes where it means the host.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

ROOT = Path(__file__).resolve().parents[2]
OURS = (str(ROOT / "engine_adapter"), str(ROOT / "kernels"))
LENT = str(ROOT / "engine_adapter/cpu_compat")
"""SGLang's kernels on a CPU: on a GPU they are compiled."""
UPLOAD = str(ROOT / "engine_adapter/sglang/upload.py")
"""Copies from page-locked memory where there is CUDA."""


class Device(str):
    """The name of the device, and not of the host."""

    __slots__ = ()


DEVICE = Device("cpu")

FROM_NUMBERS = {"tensor", "as_tensor", "asarray"}
TO_HOST = {"cpu", "item", "tolist", "numpy", "__int__", "__bool__", "__float__", "__index__"}
TO_HOST |= {"nonzero", "unique", "masked_select", "unique_consecutive", "equal", "__contains__"}
IN_PLACE = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__iand__", "__ior__"}
NO_WORK = {"__get__", "__set__", "size", "dim", "numel", "data_ptr", "untyped_storage", "stride"}
NO_WORK |= {"is_contiguous", "element_size", "__len__", "is_floating_point", "storage_offset"}
NO_WORK |= {"is_complex", "ndimension", "get_device", "record_stream", "__repr__", "is_pinned"}


class Clock(dict[int, int]):
    """What is known to be over: time on each stream."""

    def join(self, other: dict[int, int]) -> None:
        for stream, at in other.items():
            self[stream] = max(self.get(stream, 0), at)

    def knows(self, stream: int, at: int) -> bool:
        return self.get(stream, 0) >= at


class Stream:
    """In place of `torch.cpu.Stream`."""

    made = 0
    watch: WatchedDevice | None = None

    def __init__(self, priority: int = 0, **_: Any) -> None:
        Stream.made += 1
        self.number = self.cuda_stream = Stream.made
        self.clock = Clock()

    def wait_stream(self, other: Stream) -> None:
        self._joined(other.clock)

    def wait_event(self, event: Event) -> None:
        self._joined(event.clock)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        if Stream.watch is not None:
            Stream.watch.host_waits(self.clock)

    def _joined(self, clock: Clock) -> None:
        if Stream.watch is not None:
            Stream.watch.sweep()
        self.clock.join(clock)


class Event:
    """In place of `torch.cpu.Event`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.clock = Clock()

    def record(self, stream: Stream | None = None) -> None:
        self.clock = Clock((stream or current_stream()).clock)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        if Stream.watch is not None:
            Stream.watch.host_waits(self.clock)

    def query(self) -> bool:
        return True


_streams: list[Stream] = []


def current_stream(_device: Any = None) -> Stream:
    return _streams[-1]


class StreamContext:
    """In place of `torch.cpu.StreamContext`."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        _streams.append(self.stream or _streams[-1])

    def __exit__(self, *_: object) -> None:
        _streams.pop()


def install() -> None:
    """Before SGLang asks torch for streams."""
    _streams.append(Stream())
    for module in (torch.cpu, torch.cuda):
        module.Stream, module.Event = Stream, Event
        module.StreamContext, module.stream = StreamContext, StreamContext
        module.current_stream = current_stream
    torch.Tensor.record_stream = _record_stream


def _record_stream(tensor: torch.Tensor, stream: Stream) -> None:
    if Stream.watch is not None and (kept := Stream.watch.record(tensor)) is not None:
        kept.recorded.add(stream.number)


@dataclass
class Record:
    """Memory of the device.

    Attributes:
        weak: Tells whether it was given back.
        made_on: The stream it goes back to.
        made_at: The line that made it.
        written: Last write: stream, time, line.
        read: Last read by each stream: time, line.
        recorded: Streams it waits for before it is given to somebody else.
        is_old: It was made before the device was last idle; who gets it next is unknown.
    """

    weak: StorageWeakRef
    made_on: Stream
    made_at: str
    written: tuple[int, int, str] | None = None
    read: dict[int, tuple[int, str]] = field(default_factory=dict)
    recorded: set[int] = field(default_factory=set)
    is_old: bool = False


class WatchedDevice(TorchFunctionMode):  # type: ignore[misc]
    """Watches every call of torch in this thread.

    Attributes:
        kind: What is run now; transfers are counted by it.
        blocking: Times the host waited in our own lines, by kind and line.
        unordered: Faults, each once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kind = "start"
        self.blocking: Counter[tuple[str, str]] = Counter()
        self.unordered: dict[str, str] = {}
        self.num_ordered = 0
        self._records: dict[int, Record] = {}
        self._host = Clock()
        Stream.watch = self

    def host_waits(self, clock: Clock) -> None:
        """Whatever is launched from now on comes after all that."""
        self.sweep()
        self._host.join(clock)

    def settle(self) -> None:
        """Everything that was launched is over: an engine has started, or was idle for long."""
        self.sweep()
        for kept in self._records.values():
            kept.written, kept.read, kept.is_old = None, {}, True

    def sweep(self) -> None:
        """Look at memory that was given back; to be called before a clock learns anything."""
        for key in [key for key, kept in self._records.items() if kept.weak.expired()]:
            self._given_back(self._records.pop(key))

    def record(self, tensor: torch.Tensor) -> Record | None:
        """What is known of a tensor's memory; None on the host."""
        key = _memory(tensor)
        kept = self._records.get(key) if key is not None else None
        if kept is not None and kept.weak.expired():
            assert key is not None
            self._given_back(self._records.pop(key))
            return None
        return kept

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name in NO_WORK:
            return func(*args, **kwargs)
        if name in ("to", "cpu", "cuda"):
            return self._moved(name, func, args, kwargs)
        inputs = [one for one in _tensors((args, kwargs)) if self.record(one) is not None]
        to_device = _is_device(kwargs.get("device"))
        if name in FROM_NUMBERS and to_device:
            self._blocks(f"{name} of numbers")
        if inputs:
            self._look_for_waits(name, args)
        made = func(*args, **kwargs)
        if not inputs and not to_device:
            return made
        in_place = name in IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        target = args[0] if in_place and args else kwargs.get("out")
        line = _line()
        outputs = [one for one in _tensors(made) if one is not target]
        shared = {_memory(one) for one in inputs}
        new = [one for one in outputs if _memory(one) not in shared]
        if outputs and not new and target is None:
            return made  # a view
        stream = current_stream()
        stream.clock.join(self._host)
        now = stream.clock[stream.number] = stream.clock.get(stream.number, 0) + 1
        for one in inputs:
            if one is not target:
                self._reads(one, stream, now, line)
        for one in [*new, *([target] if isinstance(target, torch.Tensor) else [])]:
            self._writes(one, stream, now, line)
        if name in TO_HOST:
            self.host_waits(stream.clock)
        return made

    def _moved(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """`to`, `cpu`, `cuda`: another memory, or another type in the same one."""
        source, where = args[0], kwargs.get("device", args[1] if len(args) > 1 else None)
        kept = self.record(source)
        blocking = not (kwargs.get("non_blocking") or (len(args) > 2 and True in args[2:]))
        to_host = name == "cpu" or (type(where) is str and where == "cpu")
        to_device = _is_device(where)
        made = func(*args, **kwargs)
        stream, line = current_stream(), _line()
        if kept is None and to_device:
            if sys._getframe(2).f_code.co_filename != UPLOAD:
                self._blocks("to the device" if blocking else "to the device, not page-locked")
            made = made.clone() if made is source else made
        elif kept is not None and to_host:
            made = made.clone() if made is source else made
            if blocking:
                self._blocks("to the host")
        elif kept is None or made is source:
            return made
        stream.clock.join(self._host)
        now = stream.clock[stream.number] = stream.clock.get(stream.number, 0) + 1
        if kept is not None:
            self._reads(source, stream, now, line)
        if not to_host:
            self._writes(made, stream, now, line)
        elif blocking:
            self.host_waits(stream.clock)
        elif kept is not None:  # SGLang's `_async_d2h`, which says so on CUDA alone
            kept.recorded.add(stream.number)
        return made

    def _look_for_waits(self, name: str, args: Any) -> None:
        if name in TO_HOST:
            made = next(kept.made_at for one in _tensors(args) if (kept := self.record(one)))
            self._blocks(f"{name} of what {made.partition(':')[0]} made")
        if name in ("__getitem__", "__setitem__") and self.record(args[0]) is not None:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            for one in index:
                if isinstance(one, list):
                    self._blocks(f"{name} with a list")
                elif isinstance(one, torch.Tensor) and one.dim():
                    if self.record(one) is None:
                        kept = self.record(args[0])
                        made = kept.made_at.partition(":")[0] if kept else "nobody"
                        self._blocks(f"{name} of what {made} made, with an index of the host")
                    elif one.dtype == torch.bool and name == "__getitem__":
                        self._blocks("a mask as an index")

    def _blocks(self, what: str) -> None:
        frame = _frame()
        place = frame.f_code.co_filename
        if place.startswith(OURS) and not place.startswith(LENT):
            at = f"{Path(place).relative_to(ROOT)} {frame.f_code.co_name}: {what}"
            self.blocking[self.kind, at] += 1

    def _reads(self, tensor: torch.Tensor, stream: Stream, now: int, line: str) -> None:
        kept = self.record(tensor)
        if kept is None:
            return
        if kept.written is not None and kept.written[0] != stream.number:
            self._check(stream.clock, kept.written, "is read before it is surely written", line)
        kept.read[stream.number] = (now, line)

    def _writes(self, tensor: torch.Tensor, stream: Stream, now: int, line: str) -> None:
        kept = self.record(tensor)
        if kept is None and _memory(tensor) is None:
            return
        if kept is None:
            storage = tensor.untyped_storage()
            kept = Record(StorageWeakRef(storage), stream, line)
            self._records[storage._cdata] = kept
        if kept.written is not None and kept.written[0] != stream.number:
            self._check(stream.clock, kept.written, "is written by two streams at once", line)
        for other, (at, where) in kept.read.items():
            if other != stream.number:
                self._check(stream.clock, (other, at, where), "is written while it is read", line)
        kept.written, kept.read = (stream.number, now, line), {}

    def _given_back(self, kept: Record) -> None:
        if kept.is_old:
            return
        clock = Clock(kept.made_on.clock)
        clock.join(self._host)
        uses = [(stream, at, line) for stream, (at, line) in kept.read.items()]
        uses += [kept.written] if kept.written is not None else []
        for use in uses:
            if use[0] != kept.made_on.number and use[0] not in kept.recorded:
                self._check(clock, use, "is given back while it is used", kept.made_at)

    def _check(self, clock: Clock, use: tuple[int, int, str], what: str, line: str) -> None:
        stream, at, where = use
        self.num_ordered += 1
        if not clock.knows(stream, at):
            self.unordered.setdefault(f"{line} {what} ({where})", self.kind)


def _is_device(where: Any) -> bool:
    return isinstance(where, (Device, torch.device)) and str(where) != "meta"


def _tensors(thing: Any) -> list[torch.Tensor]:
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, (list, tuple)):
        return [one for part in thing for one in _tensors(part)]
    if isinstance(thing, dict):
        return [one for part in thing.values() for one in _tensors(part)]
    return []


def _memory(tensor: torch.Tensor) -> int | None:
    """Of whose bytes it is a view; None of packed weights, which nobody writes."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except NotImplementedError:
        return None


def _frame() -> Any:
    """Who called torch."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_filename == __file__ or "/torch/" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame


def _line() -> str:
    frame = _frame()
    path = frame.f_code.co_filename.rpartition("site-packages/")[2]
    return f"{path.removeprefix(f'{ROOT}/')}:{frame.f_lineno}"
