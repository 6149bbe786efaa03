"""`python -m tests.soak [--lines N] [--minutes M] [--seed N] [--save]`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from datetime import UTC, datetime
from typing import Any

import orjson

from bench.paths import RESULTS
from bench.report import environment
from tests.soak.run import DISTURBED, UNDISTURBED, Outcome, soak

EVENTS = {
    "steps stopped whole": "stopped_steps_total_abort",
    "steps that dropped rows": "stopped_steps_total_drop",
    "rows undone": "undone_requests_total",
    "rows left out of a step": "parked_request_steps_total",
    "rows retracted": "retracted_requests_total",
    "rows reaped": "reaped_requests_total",
    "pages checkpointed": "checkpointed_pages_total",
    "tokens restored": "restored_tokens_total",
}
"""What must have happened, or nothing was shown."""


def summary(calm: Outcome, rough: Outcome) -> dict[str, Any]:
    """Figures of the pair, and what is wrong with it."""
    traffic = rough.traffic
    assert traffic is not None
    different = [key for key, said in calm.answers.items() if rough.answers.get(key) != said]
    several = [number for number, said in traffic.answers.items() if len(said) > 1]
    events = {words: int(rough.runtime.get(name, 0)) for words, name in EVENTS.items()}
    figures = {
        "lines": len(calm.answers),
        "lines answered otherwise": len(different),
        "online streams": dict(traffic.counts),
        "prompts with several answers": len(several),
        **events,
        "tokens recomputed": int(rough.runtime.get("recomputed_tokens_total", 0)),
        "plans rejected": int(rough.runtime.get("rejected_plans_total", 0)),
        "wall_s": {"undisturbed": round(calm.wall_s), "disturbed": round(rough.wall_s)},
    }
    wrong = [f"{words}: none" for words, num in events.items() if num == 0]
    wrong += [f"{key} was answered otherwise" for key in different]
    wrong += [f"online prompt {number} has several answers" for number in several]
    wrong += [f"a stream ended in {error}" for error in traffic.errors]
    for name, run in (("undisturbed", calm), ("disturbed", rough)):
        if run.status != "completed" or len(run.answers) != len(calm.answers):
            wrong.append(f"the {name} batch is {run.status} with {len(run.answers)} answers")
        if run.log_tracebacks:
            wrong.append(f"{run.log_tracebacks} tracebacks in the engine's log, {name}")
    if figures["plans rejected"]:
        wrong.append(f"{figures['plans rejected']} plans rejected")
    return {"measured": figures, "wrong": wrong}


def main() -> int:
    """Run undisturbed and disturbed, compare, print; with `--save` write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=124)
    parser.add_argument("--minutes", type=float, default=15.0, help="of traffic at most")
    parser.add_argument("--seed", type=int, default=None, help="of the traffic")
    parser.add_argument("--save", action="store_true", help="write bench/results/soak.json")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}: {options.lines} lines", flush=True)
    with tempfile.TemporaryDirectory(prefix="csp-") as profiles:
        given = {"COSERVE_PROFILE_DIR": profiles}
        limit_s = options.minutes * 60
        calm = asyncio.run(soak(given | UNDISTURBED, options.lines, seed=None, limit_s=limit_s))
        print(f"undisturbed: {calm.status} after {calm.wall_s:.0f} s", flush=True)
        rough = asyncio.run(soak(given | DISTURBED, options.lines, seed=seed, limit_s=limit_s))
    told = summary(calm, rough)
    for words, figure in told["measured"].items():
        print(f"  {words}: {figure}")
    print("\n".join(told["wrong"]) or "every answer is the same")
    if options.save:
        body = {
            "name": "soak",
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251
            "environment": environment(),
            "setting": {"seed": seed, "lines": options.lines, "disturbed": DISTURBED},
            **told,
        }
        text = orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        (RESULTS / "soak.json").write_bytes(text + b"\n")
    return 1 if told["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
