"""Celery's consumer, which outlives the loss of a broker with messages in hand.

Celery closes a lost connection twice. What the first try leaves open, the second one closes; it
then wants to give unacknowledged messages back over a connection that has forgotten its address,
and the worker ends. Nothing can be given back to a broker that is gone: its messages come again
after the visibility timeout, or the sweep asks again.
"""

from __future__ import annotations

from celery.worker.consumer import Consumer as CeleryConsumer


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """Gives nothing back over a connection that is lost."""

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        """Close the connection, and end the tasks whose messages came over it."""
        for channel in self.connection.transport.channels:
            channel.do_restore = False
        super().on_connection_error_after_connected(exc)
