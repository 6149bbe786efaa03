"""What a run came to: what was done, what was promised, what was seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from bench.paths import RESULTS
from bench.report import environment
from tests.torture.chats import judge
from tests.torture.faults import Fault
from tests.torture.suite import Run, Setting


def summary(run: Run) -> dict[str, Any]:
    """Figures of a run; `broken` names each promise that was not kept."""
    verdict = judge(run.chats, run.spans)
    faults: dict[str, Fault] = {span.fault.name: span.fault for span in run.spans}
    times = Counter(span.fault.name for span in run.spans)
    broken = dict(run.broken)
    if verdict.broken:
        broken["chats that failed without an excuse"] = len(verdict.broken)
    if run.chats.num_wrong:
        broken["chats with another answer than their own"] = run.chats.num_wrong
    return {
        "by_fault": [
            {
                "fault": name,
                "times": times[name],
                "promise": faults[name].promise,
                "chats_meanwhile": _meanwhile(run, name),
                "chats_excused": verdict.excused[name],
            }
            for name in sorted(faults)
        ],
        "num_faults": len(run.spans),
        "num_chats": run.chats.num_answered + len(run.chats.failures),
        "num_chats_answered": run.chats.num_answered,
        "num_chats_excused": sum(verdict.excused.values()),
        "unexcused": [asdict(one) for one in verdict.broken[:20]],
        "lines": asdict(run.findings),
        "broken": broken,
    }


def _meanwhile(run: Run, name: str) -> int:
    """Chats that were under way while a fault of this name lasted, whatever came of them."""
    lasted = [
        (span.began_s, span.ended_s)
        for span in run.spans
        if span.fault.name == name and span.ended_s is not None
    ]
    return sum(
        any(began_s <= over_s and ended_s >= since_s for since_s, over_s in lasted)
        for began_s, ended_s in run.chats.spans
    )


def table(told: dict[str, Any]) -> str:
    """For people."""
    rows = [f"{'injected':38}{'times':>6}{'chats':>7}{'excused':>8}   promised"]
    rows += [
        f"{one['fault']:38}{one['times']:6}{one['chats_meanwhile']:7}{one['chats_excused']:8}"
        f"   {one['promise']}"
        for one in told["by_fault"]
    ]
    lines = told["lines"]
    rows += [
        f"seen: {told['num_faults']} faults; {lines['num_lines']} lines of {lines['num_batches']}"
        f" batches, {lines['num_in_output']} in outputs, {lines['num_in_errors']} in error files;"
        f" {told['num_chats']} chats, {told['num_chats_answered']} answered,"
        f" {told['num_chats_excused']} failed and excused",
        *(f"  unexcused: {one}" for one in told["unexcused"]),
    ]
    kept = "nothing lost, doubled or leaked"
    rows.append("BROKEN: " + str(told["broken"]) if told["broken"] else kept)
    return "\n".join(rows)


def write(name: str, setting: Setting, told: dict[str, Any]) -> Path:
    """`bench/results/NAME.json`."""
    body = {
        "name": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251
        "environment": environment(),
        "setting": asdict(setting),
        "measured": told,
        "missed": [f"{name}: {num}" for name, num in told["broken"].items()],
    }
    path = RESULTS / f"{name}.json"
    path.write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
    return path
