"""The dispatch worker's processes: one for each engine it serves, and one that is free.

A dispatcher is a task that lasts as long as there is work, so a pool of a fixed size has room for
so many engines and no more. This one grows where every process has been in the same task since the
last look. It never shrinks: Celery may end a process that was given a task just now.
"""

from __future__ import annotations

from typing import Any, Final

from celery import bootsteps
from celery.worker import state

POLL_INTERVAL_S: Final = 1.0
"""A task that is there at two looks is a dispatcher; those that find one already are shorter."""

FIRST_PROCESSES: Final = 2
MAX_PROCESSES: Final = 256
MAX_AT_ONCE: Final = 16
"""Celery takes a hundred new processes within a second for processes that die again and again."""

DISPATCH_WORKER: Final = "worker-dispatch"
"""The worker that grows."""


def num_more(num_processes: int, num_long: int, num_waiting: int) -> int:
    """How many processes to add.

    Args:
        num_processes: There are.
        num_long: Of them have a dispatcher.
        num_waiting: Messages wait for a process.
    """
    if num_long < num_processes:
        return 0
    # Twice as many at most: a message may ask for an engine that has its dispatcher by now.
    wanted = min(max(1, num_waiting), num_processes, MAX_AT_ONCE)
    return max(0, min(wanted, MAX_PROCESSES - num_processes))


class Growth(bootsteps.StartStopStep):  # type: ignore[misc]
    """Looks every second whether the dispatch worker needs more processes."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._running: set[str] = set()

    def include_if(self, parent: Any) -> bool:
        """In the dispatch worker alone."""
        return str(parent.hostname).startswith(f"{DISPATCH_WORKER}@")

    def register_with_event_loop(self, parent: Any, hub: Any) -> None:
        """Called at each connection to the broker; a lost one takes its timers along."""
        hub.call_repeatedly(POLL_INTERVAL_S, self.poll, parent)

    def poll(self, worker: Any) -> None:
        """Add processes where they are needed, and let as many more messages come."""
        before, self._running = self._running, {one.id for one in state.active_requests}
        num_waiting = len(state.reserved_requests) - len(state.active_requests)
        num = num_more(worker.pool.num_processes, len(before & self._running), num_waiting)
        if num:
            worker.pool.grow(num)
            worker.pool.maintain_pool()
            worker.consumer._update_prefetch_count(num)
