"""The thread that sees requests arrive while a forward pass runs.

SGLang drains its input socket between steps. Here a thread owns the socket for good: it blocks on
it, queues every message for the scheduler, and asks the policy whether the running step has to
stop for an online arrival (ConServe, Algorithm 2). It also knows when online requests came: the
scheduler may read them a step later, but their TTFT target runs from here. ZeroMQ sockets must not
be shared between threads, so the scheduler gets a stand-in that reads the queue; the thread wakes
an idle scheduler through an event descriptor that can be polled beside SGLang's RPC socket.

What ends the thread ends the engine: an error of the socket, or a message that cannot be read, is
raised in the scheduler when it reads on, as it would be if SGLang read the socket itself. A thread
that died in silence would leave an engine that answers nobody.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import zmq
from sglang.srt.managers.io_struct import (
    BatchTokenizedGenerateReqInput,
    TokenizedGenerateReqInput,
    sock_recv,
)

from engine_adapter.scheduling.plan import Arrival, Decision, RunningStep, SafepointMode
from engine_adapter.scheduling.request import RequestClass
from engine_adapter.sglang.live_requests import classify
from engine_adapter.sglang.safepoints import StopFlag

logger = logging.getLogger(__name__)
SWITCH_INTERVAL_S = 0.0005
MAX_ARRIVALS = 10_000
AtArrival = Callable[[Arrival, RunningStep], Decision]
CachedTokens = Callable[[Any], int]
"""Tokens at the front of a request's prompt that need not be computed."""


class Monitor:
    """Owner of the scheduler's input socket.

    Only ``publish``, ``retire`` and the stand-in are called from the scheduler's thread. A message
    is judged once: when it comes, by the step that runs; else, if it is still unread by then, by
    the next step that is published.

    Attributes:
        num_arrivals: Online requests seen.
        num_stops: Stop words raised.
        num_misjudged: Arrivals that could not be judged, for an error; no step stops for them.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        """Take ``socket`` over; start the thread with :meth:`start`."""
        self._socket = socket
        self._at_arrival: AtArrival = lambda _arrival, _step: Decision.CONTINUE
        self._cached_tokens: CachedTokens = lambda _request: 0
        self._messages: deque[Any] = deque()
        self._stand_in = SocketStandIn(socket, self._messages)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._arrived_at_s: OrderedDict[str, float] = OrderedDict()
        self._running: RunningStep | None = None
        self._judging = threading.Lock()
        self._earlier_tokens = 0
        self._word: StopFlag | None = None
        self.num_arrivals = 0
        self.num_stops = 0
        self.num_misjudged = 0

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """The socket itself, for a scheduler that goes on without the monitor."""
        return self._socket

    def start(self, word: StopFlag, at_arrival: AtArrival, cached_tokens: CachedTokens) -> None:
        """Begin to receive.

        Args:
            word: Stops are written there.
            at_arrival: Whether the running step stops; called on this thread.
            cached_tokens: What an arrival does not have to compute; called on this thread.
        """
        self._word = word
        self._stand_in.started = True
        self._at_arrival, self._cached_tokens = at_arrival, cached_tokens
        # The launching thread holds the interpreter for up to one switch interval.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        threading.Thread(target=self._run, name="coserve-monitor", daemon=True).start()

    @property
    def stand_in(self) -> SocketStandIn:
        """What the scheduler reads instead of the socket."""
        return self._stand_in

    @property
    def has_messages(self) -> bool:
        """Whether something waits to be read."""
        return bool(self._messages)

    def take_arrival(self, rid: str) -> float:
        """When an online request came; now, if the monitor did not see it. Asked once."""
        return self._arrived_at_s.pop(rid, None) or time.monotonic()

    @property
    def wake_fd(self) -> int:
        """Readable after a message was queued, until :meth:`clear_wake`."""
        return self._wake_fd

    def clear_wake(self) -> None:
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:
            return

    def publish(self, step: RunningStep) -> None:
        """A step is about to run; what came since the scheduler last read waits for it too."""
        with self._judging:
            self._earlier_tokens = 0
            self._running = step
            for message in self._messages.copy():
                for request in _online_requests(message):
                    self._judge(request, time.monotonic())

    def retire(self) -> None:
        self._running = None

    def _run(self) -> None:
        try:
            self._receive()
        except BaseException as error:
            logger.exception("the monitor ends, and the scheduler with it")
            self._messages.append(Failure(error))
            os.eventfd_write(self._wake_fd, 1)

    def _receive(self) -> None:
        while True:
            message = sock_recv(self._socket)
            now_s = time.monotonic()
            online = _online_requests(message)
            for request in online:  # before the scheduler can read the message
                self._arrived_at_s[request.rid] = now_s
                if len(self._arrived_at_s) > MAX_ARRIVALS:  # of requests that ended unasked for
                    self._arrived_at_s.popitem(last=False)
            with self._judging:
                self._messages.append(message)
                os.eventfd_write(self._wake_fd, 1)
                self.num_arrivals += len(online)
                for request in online:
                    self._judge(request, now_s)

    def _judge(self, request: Any, now_s: float) -> None:
        try:
            self._arrived(request, now_s)
        except Exception:
            self.num_misjudged += 1
            logger.exception("arrival could not be judged")

    def _arrived(self, request: Any, now_s: float) -> None:
        step = self._running
        if step is None or self._word is None or self._word.step_id == step.step_id:
            return
        if step.safepoints.mode is SafepointMode.NONE:
            return  # no word could stop it: the walk through the tree would be for nothing
        num_tokens = len(request.input_ids or ()) - self._cached_tokens(request)
        arrival = Arrival(
            request_class=RequestClass.ONLINE,
            prompt_tokens=num_tokens,
            at_s=now_s,
            earlier_prompt_tokens=self._earlier_tokens,
        )
        self._earlier_tokens += num_tokens
        if self._at_arrival(arrival, step) is Decision.STOP_AT_NEXT_SAFEPOINT:
            self._word.raise_for(step.step_id)
            self.num_stops += 1


class Failure:
    """Stands in the queue where the monitor ended, behind what it had received."""

    def __init__(self, error: BaseException) -> None:
        """Keep the error to raise."""
        self.error = error


class SocketStandIn:
    """Non-blocking reads of the monitor's queue; everything else is the socket's.

    Attributes:
        started: The monitor reads the socket. Before, and without it, the socket is read here.
    """

    def __init__(self, socket: zmq.Socket[bytes], messages: deque[Any]) -> None:
        self._socket = socket
        self._messages = messages
        self.started = False

    def recv_pyobj(self, flags: int = 0) -> Any:
        """The next message.

        Raises:
            zmq.Again: If there is none.
            RuntimeError: If the monitor has ended.
        """
        if not self.started:
            return sock_recv(self._socket, flags)
        try:
            message = self._messages.popleft()
        except IndexError:
            raise zmq.Again from None
        if isinstance(message, Failure):
            raise RuntimeError("the monitor of arrivals has ended") from message.error
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def _online_requests(message: Any) -> list[Any]:
    if isinstance(message, TokenizedGenerateReqInput):
        requests = [message]
    elif isinstance(message, BatchTokenizedGenerateReqInput):
        requests = list(message)
    else:
        return []
    return [
        request
        for request in requests
        if classify(request.priority, None).request_class is RequestClass.ONLINE
    ]
