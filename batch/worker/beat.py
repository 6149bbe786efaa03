"""The clock's messages: like all others, none is sent while one waits for a worker.

Else a day without workers would leave a day of messages.
"""

from __future__ import annotations

from typing import Any

from celery.beat import ScheduleEntry, Scheduler

from batch.queue import send


class WakeScheduler(Scheduler):  # type: ignore[misc]
    """Celery's scheduler in memory: nothing in the schedule has to be remembered over a restart."""

    def apply_async(
        self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **kwargs: Any
    ) -> None:
        """Send an entry's message, unless one waits; an error is logged by who calls this."""
        del producer, kwargs
        if advance:
            self.reserve(entry)
        send(self.app, entry.task)
