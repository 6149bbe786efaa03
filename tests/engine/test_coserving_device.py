"""What only a device would show: the order of its streams, and who waits for it.

A real scheduler runs every kind of step on a CPU that is watched (`watched_device.py`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)

MAY_WAIT: Final[dict[str, set[str]]] = {
    "passes": set(),
    "penalties": set(),
    "aborts": set(),
    # Lengths that SGLang keeps on the host, in a buffer that is only known to be SGLang's.
    "drops": {
        f"engine_adapter/sglang/safepoints.py cut_forward_batch: {what}"
        for what in (
            "__getitem__ of what sglang/srt/model_executor/cuda_graph_buffer_registry.py made, "
            "with an index of the host",
            "__int__ of what engine_adapter/sglang/safepoints.py made",
        )
    },
    "copies": set(),
}
"""Lines of ours at which the host may wait for the device, by kind of step."""


@cache
def found() -> dict[str, Any]:
    return run_script("coserving_device.py")


def test_every_kind_of_step_was_run() -> None:
    events = found()["events"]
    assert events["aborts"] > 5
    assert events["drops"] > 5
    assert events["retracts"] == 4
    assert events["restored_requests"] >= 2
    assert events["checkpointed_pages"] > 10


def test_what_two_streams_share_is_ordered() -> None:
    # 3,200 pairs on either release; 260 where only SGLang's results and our copies were seen.
    assert found()["ordered"] > 2000, "pairs of uses by two streams that were looked at"
    assert found()["unordered"] == {}


def test_the_host_waits_for_the_device_where_it_is_allowed_to_only() -> None:
    waits = {(kind, at) for kind, at, _ in found()["waits"] if kind != "start"}
    assert waits <= {(kind, at) for kind, lines in MAY_WAIT.items() for at in lines}, waits
