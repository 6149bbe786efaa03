"""What a pass on CUDA needs that a pass on a CPU does not. Not run on CUDA yet.

The host launches a pass much faster than the device computes it: without more, all layers are
launched before a stop can be asked for, a stop word means nothing, and wall-clock time around a
launch measures the launch. So

- armed passes are launched at most one layer group ahead of the device (``RunAhead``), and the
  groups in flight share the time that a stop may take,
- armed prefills run as a breakable graph with a look between its segments (``guard_segments``), or
  layer by layer where rows may be dropped or the graph has no segments (``eager_when_armed``);
  decode graphs stay: one step of them is short,
- the duration of a step is taken between two events on the device (``DeviceClock``), in serving and
  in the profile. That of a step that may be stopped has the host's time in it in both: nothing runs
  on the device while its first layers are prepared.

torch is imported only where there is CUDA.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from engine_adapter.scheduling.derive import GROUPS_IN_FLIGHT

HELD_CYCLES = 20_000_000
"""Some 10 ms: longer than a host takes to prepare a step and to launch its graphs."""
POLL_S = 20e-6
# A thread that waits for the interpreter gets it after this long; the default is ten times as much.
SWITCH_INTERVAL_S = 0.0005


class Mark(Protocol):
    """A point in the device's work: what is used of `torch.cuda.Event`."""

    def query(self) -> bool:
        """Whether the device has passed it."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has passed it."""
        ...

    def elapsed_time(self, later: Any) -> float:
        """Milliseconds on the device from this mark to a later one."""
        ...


class RunAhead:
    """Keeps the host close to the device, so that a safepoint decides about work not yet begun.

    ::

        device     | group 0 | group 1 |
        host        launch 0   launch 1   safepoint 2: polls "group 0 done?" and the stop word
    """

    def __init__(
        self,
        mark: Callable[[], Mark],
        groups_in_flight: int = GROUPS_IN_FLIGHT,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] | None = None,
        marks_begin: bool = False,
    ) -> None:
        """Bound the launches.

        Args:
            mark: Marks the end of what was launched so far.
            groups_in_flight: Layer groups launched and not finished, the next one included.
            sleep: Waits between two polls; must let other threads run.
            clock: The host's; ``time.monotonic`` if None.
            marks_begin: Mark the begin of a pass too, for a time to a stop before its first mark.
        """
        self._mark = mark
        self._ahead = groups_in_flight - 1
        self._sleep = sleep
        self._clock = clock or time.monotonic
        self._marks_begin = marks_begin
        self._marks: deque[Mark] = deque()
        self._begun: Mark | None = None
        self._newest: Mark | None = None
        self._seen: tuple[Mark, float] | None = None

    def begin(self, groups_in_flight: int | None = None) -> None:
        """A new pass: nothing of it is launched, and so many groups may be; None: as before."""
        if groups_in_flight is not None:
            self._ahead = groups_in_flight - 1
        self._marks.clear()
        self._newest = self._seen = None
        self._begun = self._mark() if self._marks_begin else None

    def at_safepoint(self, stop_asked: Callable[[], bool]) -> bool:
        """Wait until the next group may be launched.

        Args:
            stop_asked: Reads the stop word.

        Returns:
            Whether a stop was asked for, before or during the wait.
        """
        self._newest = self._mark()
        self._marks.append(self._newest)
        if self._seen is None and self._begun is not None and self._begun.query():
            self._seen = self._begun, self._clock()
        while not stop_asked():
            while self._marks and self._marks[0].query():
                self._seen = self._marks.popleft(), self._clock()
            if len(self._marks) <= self._ahead:
                return stop_asked()
            self._sleep(POLL_S)
        return True

    def freed_at_s(self) -> Callable[[], float]:
        """After a stop: when the device is done with what had been launched before it.

        Returns:
            A function that waits for that and gives the instant, on the host's clock. It lies as
            far behind the newest mark that the host saw passed as the device took from there. If it
            saw none, it is the instant at which the host learns of it.
        """
        newest, seen, stopped_at_s, clock = self._newest, self._seen, self._clock(), self._clock
        assert newest is not None, "nothing stops in front of a safepoint"

        def at_s() -> float:
            newest.synchronize()
            free_at_s = clock()
            if seen is not None:
                mark, seen_at_s = seen
                free_at_s = min(free_at_s, seen_at_s + mark.elapsed_time(newest) / 1000.0)
            return max(stopped_at_s, free_at_s)

        return at_s


class DeviceClock:
    """Duration of a step on the device; on a CPU the pass itself takes the time."""

    def __init__(self, stream: Any, cuda: Any = None) -> None:
        """Measure with the events of ``cuda``, on the host if that is None.

        Args:
            stream: Where the passes run; None takes the stream that is current at each call.
            cuda: The module ``torch.cuda``.
        """
        self._stream = stream
        self._cuda = cuda
        self._ended: Any = None
        self._before: tuple[Any, Any] = None, None

    def hold(self) -> None:
        """Keep the device busy while the host prepares what comes next.

        In the overlap loop the pass before does that: what is launched meanwhile follows without a
        gap, and the host's time is not part of it.
        """
        if self._cuda:
            self._cuda._sleep(HELD_CYCLES)

    def start(self) -> Any:
        if not self._cuda:
            return time.monotonic()
        started = self._event()
        self._before = self._ended, started
        return started

    def stop(self, started: Any) -> Callable[[], float]:
        """After a launch.

        Returns:
            A function that gives the seconds; call it once the result has arrived.
        """
        if not self._cuda:
            seconds = time.monotonic() - float(started)
            return lambda: seconds
        ended = self._ended = self._event()

        def measured() -> float:
            ended.synchronize()
            return float(started.elapsed_time(ended)) / 1000.0

        return measured

    def gap(self) -> Callable[[], float]:
        """Of the pass that was started last.

        Returns:
            A function that gives how long the device had stood still before it; call it as that of
            :meth:`stop`. 0 where the host computes.
        """
        ended, started = self._before
        if ended is None:
            return float

        def gap_s() -> float:
            started.synchronize()
            return float(ended.elapsed_time(started)) / 1000.0

        return gap_s

    def _event(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._stream or self._cuda.current_stream())
        return event


def emulated_pass(model_runner: Any) -> Any:
    """The emulated device behind a runner, which takes the time of a table, or None."""
    return getattr(model_runner, "emulated", None)


def host_computes(scheduler: Any) -> bool:
    """Whether passes run on the scheduler's own thread, not on a device beside it."""
    return scheduler.device == "cpu" and emulated_pass(scheduler.tp_worker.model_runner) is None


def device_clock(scheduler: Any) -> Any:
    """The clock for this scheduler's device."""
    emulated = emulated_pass(scheduler.tp_worker.model_runner)
    if emulated is not None:
        return emulated.pass_clock()
    if scheduler.device != "cuda":
        return DeviceClock(None)
    import torch

    return DeviceClock(pass_stream(scheduler), torch.cuda)


def pass_stream(scheduler: Any) -> Any:
    """The stream of the forward passes; without the overlap loop that is the current one: None."""
    return scheduler.forward_stream if scheduler.enable_overlap else None


def most_groups(model_runner: Any) -> int:
    """Layer groups that may be launched and not finished; 1 where the host computes itself."""
    emulated = emulated_pass(model_runner)
    is_ahead = model_runner.device == "cuda" or hasattr(emulated, "run_ahead")
    return GROUPS_IN_FLIGHT if is_ahead else 1


def run_ahead(model_runner: Any) -> RunAhead | None:
    """A bound for this runner's launches; None where the host computes itself."""
    emulated = emulated_pass(model_runner)
    if emulated is not None:
        bound: RunAhead = emulated.run_ahead()
        return bound
    if model_runner.device != "cuda":
        return None
    import torch

    def mark() -> Mark:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    sys.setswitchinterval(SWITCH_INTERVAL_S)  # the monitor must get a word in
    return RunAhead(mark, marks_begin=True)


def eager_when_armed(model_runner: Any, is_armed: Callable[[], bool]) -> bool:
    """Keep prefills that no look between segments can serve out of CUDA graphs.

    Returns:
        Whether there are any graphs of prefills.
    """
    graphs = _prefill_graphs(model_runner)
    if graphs is None:
        return False
    can_run = graphs.can_run_graph
    graphs.can_run_graph = lambda forward_batch: not is_armed() and can_run(forward_batch)
    return True


def captured_prefill_tokens(model_runner: Any) -> tuple[int, ...]:
    """Token counts of the captured graphs of prefills, ascending; empty without any."""
    return tuple(sorted(getattr(_prefill_graphs(model_runner), "capture_num_tokens", ())))


def _prefill_graphs(model_runner: Any) -> Any:
    on_cuda = model_runner.device == "cuda"
    return getattr(model_runner, "prefill_cuda_graph_runner", None) if on_cuda else None


def captured_batch_sizes(model_runner: Any) -> tuple[int, ...]:
    """Row counts of the captured decode graphs, which no safepoint can stop; empty without any."""
    emulated = emulated_pass(model_runner)
    if emulated is not None:
        return tuple(emulated.batch_size_buckets)
    graphs = getattr(model_runner, "decode_cuda_graph_runner", None)
    if model_runner.device != "cuda" or graphs is None:
        return ()
    return tuple(getattr(graphs, "capture_bs", ()))


# --- Safepoints between the segments of a breakable prefill graph.
#
# SGLang captures a prefill on CUDA as one graph per stretch between two attentions and replays the
# stretches in a loop on the host, the attentions eagerly between them:
#
#     host   segment 0 | attention 0 | segment 1 | attention 1 | ... | segment n
#     look               -             before      -                   before
#
# Module hooks are not called in a replay, so the look is put in front of the segments themselves.
# A pass can be stopped there and nothing else: shapes in a graph are fixed, so a step whose rows
# may be dropped is launched layer by layer (:func:`eager_when_armed`).


class GuardedSegment:
    """A graph segment that looks at a safepoint before it is replayed."""

    def __init__(self, segment: Any, layer: int, look: Callable[[int], None]) -> None:
        """Guard ``segment``, the first of the pass that belongs to ``layer``."""
        self._segment = segment
        self._layer = layer
        self._look = look

    def replay(self) -> None:
        """Look, then launch; whatever the look raises ends the pass."""
        self._look(self._layer)
        self._segment.replay()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the segment's own."""
        return getattr(self._segment, name)


def guard_segments(model_runner: Any, num_layers: int, look: Callable[[int], None]) -> int:
    """Put a look in front of each layer's first segment, in all captured prefill graphs.

    Args:
        model_runner: SGLang's, with its graphs captured.
        num_layers: Decoder layers of the model; segments are spread evenly over them.
        look: Called with the layer that is next.

    Returns:
        Graphs guarded: none on a CPU, without graphs, or with graphs of another kind.
    """
    runner = getattr(model_runner, "prefill_cuda_graph_runner", None)
    graphs = getattr(getattr(runner, "backend", None), "_graphs", None)
    if not isinstance(graphs, dict):
        return 0
    breakable = [graph for graph in graphs.values() if len(getattr(graph, "_segments", ())) > 1]
    for graph in breakable:
        graph._segments = _guarded(graph._segments, num_layers, look)
    return len(breakable)


def _guarded(segments: list[Any], num_layers: int, look: Callable[[int], None]) -> list[Any]:
    """One look a layer, however many segments it has; none before the pass has begun."""
    guarded = []
    seen = 0
    for i, segment in enumerate(segments):
        layer = i * num_layers // (len(segments) - 1)
        guarded.append(GuardedSegment(segment, layer, look) if layer > seen else segment)
        seen = layer
    return guarded
