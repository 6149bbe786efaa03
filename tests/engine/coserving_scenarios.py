"""Forced events on a real scheduler, each held against an undisturbed run.

Runs in the engine's venv: ``python coserving_scenarios.py OVERLAP DTYPE PAGE_SIZE SCENARIO...``;
prints one JSON object, ``{scenario: {"error": ... | null, ...events}}``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang.versions.installed import seam
from tests.engine.scenario_cuts import cuts, margins
from tests.engine.scenario_steps import (
    counters,
    gained,
    report,
    run_and_compare,
    stopped_layers,
    undisturbed,
    wipe,
)
from tests.engine.scheduler_rig import Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy, Wishes


def abort_prefill(rig: Rig) -> dict[str, Any]:
    """(a) A pure-offline prefill is stopped at layers 1, 3 and 5, in its first and later chunks."""
    jobs = {"off": (prompt(11, 400), -10), "off2": (prompt(12, 90), -10)}
    wishes = Wishes(chunk={"off": 128})
    expected = undisturbed(rig, jobs, wishes)
    before = counters(rig)
    policy = rig.use(ScriptedPolicy(lambda snapshot: wishes))
    layers = iter([1, 3, 5, 2])

    def script(rig: Rig) -> None:
        next_id = rig.scheduler.execution.snapshots._step_id + 1
        # every other prefill step is stopped, so that each chunk is stopped and then computed
        if rig.step % 2 == 1 and (layer := next(layers, None)):
            rig.stop_at[next_id] = layer

    run_and_compare(rig, jobs, expected, script)
    after = counters(rig)
    events = gained(before, after, "aborts", "undone_requests")
    events["layers"] = stopped_layers(before, after)
    assert events["layers"] == [1, 3, 5, 2], events
    dropped = [step for step in policy.finished if step.outcome.dropped]
    assert len(dropped) == 4, "the driver was told of every stop"
    return events


def abort_decode(rig: Rig) -> dict[str, Any]:
    """(a) A pure-offline decode step is stopped: the new slot and length are undone."""
    jobs = {"off": (prompt(13, 60), -10), "off2": (prompt(14, 33), -10)}
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    rig.use(ScriptedPolicy())
    layers = {4: 1, 6: 3, 7: 5, 8: 4}

    def script(rig: Rig) -> None:
        if rig.step in layers:
            rig.stop_at[rig.scheduler.execution.snapshots._step_id + 1] = layers[rig.step]

    run_and_compare(rig, jobs, expected, script)
    events = {"layers": stopped_layers(before, counters(rig))}
    assert events["layers"] == [1, 3, 5, 4], events
    return events


def drop_chunk(rig: Rig) -> dict[str, Any]:
    """(b) An offline chunk is dropped from a step in which an online request decodes."""
    jobs = {"on": (prompt(15, 40), 0), "off": (prompt(16, 300), -10)}
    expected = undisturbed(rig, jobs)
    return _drop(rig, jobs, expected, Wishes(chunk={"off": 60}), {"off"}, {3: 1, 4: 3, 6: 5})


def drop_decode(rig: Rig) -> dict[str, Any]:
    """(b) Offline decode requests are dropped from a step that prefills an online prompt."""
    jobs = {"off": (prompt(17, 50), -10), "off2": (prompt(18, 70), -10), "on": (prompt(19, 260), 0)}
    expected = undisturbed(rig, jobs)
    return _drop(rig, jobs, expected, Wishes(chunk={"on": 70}), {"on"}, {4: 1, 5: 3, 6: 5})


def _drop(
    rig: Rig,
    jobs: dict[str, tuple[list[int], int]],
    expected: dict[str, list[int]],
    wishes: Wishes,
    late: set[str],
    layers: dict[int, int],
) -> dict[str, Any]:
    before = counters(rig)

    def wish(snapshot: Snapshot) -> Wishes:
        wishes.hold = late if rig.step < 3 else set()
        return wishes

    rig.use(ScriptedPolicy(wish))

    def script(rig: Rig) -> None:
        if rig.step in layers:
            rig.stop_at[rig.scheduler.execution.snapshots._step_id + 1] = layers[rig.step]

    run_and_compare(rig, jobs, expected, script)
    after = counters(rig)
    events = gained(before, after, "drops", "aborts", "undone_requests")
    events["layers"] = stopped_layers(before, after)
    assert (events["drops"], events["aborts"]) == (len(layers), 0), events
    assert events["layers"] == list(layers.values()), events
    return events


def restore(rig: Rig) -> dict[str, Any]:
    """(c, d) Checkpoint, retract three times, restore, decode on; KV byte for byte."""
    jobs = {"off": (prompt(21, 133), -10)}
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    at = [6, 14, 20]
    kv_lengths: list[int] = []
    saved: dict[str, Any] = {}
    written: list[Any] = []

    def kv_of(live: Any, num_tokens: int) -> Any:
        table = rig.scheduler.req_to_token_pool.req_to_token
        return rig.scheduler.execution.checkpointer.pool.device_tokens(
            table[seam.slot(live.req), :num_tokens].long()
        )

    def wish(snapshot: Snapshot) -> Wishes:
        request = snapshot.requests.get("off")
        live = rig.scheduler.execution.requests.get("off")
        if (
            live is not None
            and request is not None
            and request.phase is Phase.RETRACTED
            and not saved
        ):
            saved["kv"] = written.pop()
            kv_lengths.append(request.host_tokens)
            rig.scheduler.tree_cache.reset()  # nothing of the request is left on the device
            rig.scheduler.token_to_kv_pool_allocator.clear()
            wipe(rig)
        elif saved and request is not None and request.phase is Phase.DECODE:
            now = kv_of(live, kv_lengths[-1])
            then = saved.pop("kv")
            assert now.shape == then.shape
            assert (now == then).all(), "restored KV differs from what was written"
        due = request is not None and at and request.output_tokens >= at[0]
        if request is not None and due and request.phase is Phase.DECODE and not request.in_flight:
            at.pop(0)
            written.append(kv_of(live, seam.kv_len(live.req)))
            return Wishes(retract={"off"})
        # With the overlap loop a result is on its way: wait for it without running again.
        park = {"off"} if due else set()
        return Wishes(park=park, checkpoint=True, fetch_pages=3)

    rig.use(ScriptedPolicy(wish))
    run_and_compare(rig, jobs, expected, lambda rig: None)
    after = counters(rig)
    events = gained(
        before,
        after,
        "retracts",
        "restored_requests",
        "restored_tokens",
        "recomputed_tokens",
        "checkpointed_pages",
    )
    assert (events["retracts"], events["restored_requests"]) == (3, 3), events
    assert events["recomputed_tokens"] == 0, events
    assert events["restored_tokens"] == sum(kv_lengths), (events, kv_lengths)
    assert after["host_free_pages"] == after["host_total_pages"], "host pages leaked"
    return events


def shared_prefix(rig: Rig) -> dict[str, Any]:
    """Two requests share a prefix, one is retracted and comes back."""
    head = prompt(22, 96)
    jobs = {"a": (head + prompt(23, 20), -10), "b": (head + prompt(24, 31), -10)}
    expected = undisturbed(rig, jobs)
    before, done = counters(rig), list[int]()

    def wish(snapshot: Snapshot) -> Wishes:
        request = snapshot.requests.get("b")
        hold = (
            {"b"}
            if "a" in snapshot.requests and snapshot.requests["a"].output_tokens < 2
            else set()
        )
        if (
            request is not None
            and request.phase is Phase.DECODE
            and request.output_tokens > 7
            and not done
        ):
            if request.in_flight:
                return Wishes(park={"b"}, checkpoint=True)
            done.append(rig.step)
            return Wishes(retract={"b"})
        return Wishes(hold=hold, checkpoint=True)

    rig.use(ScriptedPolicy(wish))
    run_and_compare(rig, jobs, expected, lambda rig: None)
    events = gained(before, counters(rig), "retracts", "restored_requests")
    assert events == {"retracts": 1, "restored_requests": 1}, events
    assert rig.reqs["b"].cached_tokens == 96  # found in the tree, where a holds them
    return events


def recompute(rig: Rig) -> dict[str, Any]:
    """A retract without a checkpoint: the request is prefilled again and goes on."""
    jobs = {"off": (prompt(25, 77), -10)}
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    done: list[int] = []

    def wish(snapshot: Snapshot) -> Wishes:
        request = snapshot.requests.get("off")
        if (
            request is not None
            and request.output_tokens > 9
            and request.phase is Phase.DECODE
            and not done
        ):
            if request.in_flight:
                return Wishes(park={"off"})
            done.append(rig.step)
            return Wishes(retract={"off"})
        return Wishes()

    rig.use(ScriptedPolicy(wish))
    run_and_compare(rig, jobs, expected, lambda rig: None)
    events = gained(before, counters(rig), "retracts", "restored_requests", "recomputed_tokens")
    assert events["retracts"] == 1, events
    assert events["recomputed_tokens"] > 0, events
    return events


def anew(rig: Rig) -> dict[str, Any]:
    """Computed again though the host has its KV, then checkpointed, retracted and restored."""
    jobs = {"off": (prompt(26, 133), -10)}
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    at = [6, 20]

    def wish(snapshot: Snapshot) -> Wishes:
        request = snapshot.requests.get("off")
        due = request is not None and at and request.output_tokens >= at[0]
        if request is not None and due and request.phase is Phase.DECODE and not request.in_flight:
            at.pop(0)
            return Wishes(retract={"off"}, anew={"off"})
        anew = {"off"} if len(at) == 1 else set()
        return Wishes(park={"off"} if due else set(), checkpoint=True, anew=anew)

    rig.use(ScriptedPolicy(wish))
    run_and_compare(rig, jobs, expected, lambda rig: None)
    after = counters(rig)
    events = gained(before, after, "retracts", "restored_requests", "recomputed_tokens")
    assert (events["retracts"], events["restored_requests"]) == (2, 1), events
    # The prompt was still in the prefix tree; what had been said was not.
    assert events["recomputed_tokens"] > 0, events
    assert after["host_free_pages"] == after["host_total_pages"], "host pages leaked"
    return events


def park(rig: Rig) -> dict[str, Any]:
    """Requests skip steps with their KV in place: decoding ones, and half-filled prompts."""
    jobs = {
        "a": (prompt(31, 150), -10),
        "b": (prompt(32, 140), -10),
        "c": (prompt(33, 20), -10),
        "on": (prompt(34, 30), 0),
    }
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    most_partial: list[int] = [0]

    def wish(snapshot: Snapshot) -> Wishes:
        partial = sum(request.phase is Phase.PREFILL for request in snapshot.running)
        most_partial[0] = max(most_partial[0], partial)
        names = ["a", "b", "c"]
        return Wishes(park={names[rig.step % 3]}, chunk={"a": 17, "b": 23})

    states: list[list[int]] = []

    def look(rig: Rig) -> None:
        for live in rig.scheduler.execution.requests:
            live.request.batch_id = "" if live.is_online else "batch_1"
        states.extend(counters(rig)["by_batch"].values())

    rig.use(ScriptedPolicy(wish))
    run_and_compare(rig, jobs, expected, look)
    events = gained(before, counters(rig), "parks")
    events["partials"] = most_partial[0]
    assert all(sum(one) <= 3 for one in states), "the online request is of no batch"
    assert any(one[0] == 2 and one[1] == 1 for one in states), "two decode beside a parked one"
    assert events["parks"] > 10, events
    assert events["partials"] >= 2, events
    return events


SCENARIOS = [
    abort_prefill,
    abort_decode,
    drop_chunk,
    drop_decode,
    restore,
    shared_prefix,
    recompute,
    anew,
    park,
    cuts,
    margins,
]


def main() -> None:
    overlap, dtype, page_size = sys.argv[1] == "1", sys.argv[2], int(sys.argv[3])
    rig = Rig(overlap=overlap, dtype=dtype, page_size=page_size)
    report([found for found in SCENARIOS if found.__name__ in sys.argv[4:]], rig)


if __name__ == "__main__":
    main()
