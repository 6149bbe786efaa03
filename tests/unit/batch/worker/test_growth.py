from __future__ import annotations

from types import SimpleNamespace

import pytest

from batch.worker.growth import MAX_AT_ONCE, MAX_PROCESSES, Growth, num_more


@pytest.mark.parametrize(
    ("num_processes", "num_long", "num_waiting", "num"),
    [
        (2, 0, 5, 0),  # all in short tasks: they come to what waits
        (2, 1, 5, 0),
        (2, 2, 0, 1),  # one is always free
        (2, 2, 1, 1),
        (2, 2, 100, 2),
        (40, 40, 100, MAX_AT_ONCE),
        (MAX_PROCESSES - 1, MAX_PROCESSES - 1, 100, 1),
        (MAX_PROCESSES, MAX_PROCESSES, 100, 0),
    ],
)
def test_a_process_is_free_for_the_next_engine(
    num_processes: int, num_long: int, num_waiting: int, num: int
) -> None:
    assert num_more(num_processes, num_long, num_waiting) == num


@pytest.mark.parametrize(
    ("hostname", "grows"),
    [("worker-dispatch@one", True), ("worker-stages@one", False), ("worker-sweep@one", False)],
)
def test_the_dispatch_worker_alone_grows(hostname: str, grows: bool) -> None:
    worker = SimpleNamespace(hostname=hostname)
    assert Growth(worker).include_if(worker) is grows
