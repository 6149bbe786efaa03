"""Table, ``results.json``, CSV files and plots of a comparison."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.workload.plots import write_plots
from lab.workload.summary import MS, SystemRun

COLUMNS = (
    "system", "n", "TTFT p50", "p90", "p99", "max", "excess p90", "95% interval",
    "TBT p50", "p90", "p99", "max", "TPOT p50", "p90", "p99",
    "ttft@1.0", "tbt@1.0", "ttft@1.25", "tbt@1.25",
    "off tok/s", "of ceiling", "recomp", "cached", "preempt",
)  # fmt: skip


def write_outputs(results: dict[str, Any], runs: Sequence[SystemRun], out: Path) -> None:
    """Write everything; called after every run, so that a cut comparison leaves results."""
    part = out / "results.json.part"
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(out / "results.json")
    (out / "table.txt").write_text(table(results) + "\n")
    _write_requests(runs, out / "requests.csv")
    _write_tokens(runs, out / "tokens.csv")
    write_plots(results, runs, out)


def table(results: dict[str, Any]) -> str:
    """One line per system; milliseconds unless said otherwise."""
    rows = [COLUMNS, *(_row(name, s) for name, s in results["systems"].items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    environment = results["environment"]
    share = 100 * environment.get("options", {}).get("target_percentile", 0.9)
    lines.append(
        f"arrivals stretched by {environment['scale_factor']:.2f}; targets (online-only's "
        f"P{share:.0f}, repeat by repeat): TTFT {_targets(environment, 'ttft')} ms, "
        f"TBT {_targets(environment, 'tbt')} ms; "
        "P99 only for n >= 300; excess: against online-only, request by request"
    )
    bound = environment.get("ceiling")
    if bound:
        lines.append(
            f"ceiling: these targets leave {bound['tokens_per_s']:.0f} offline tokens/s at most: "
            f"{bound['beside']:.0f} while online requests decode "
            f"({100 * bound['online_share']:.0f}% of the time), none beside their prompts "
            f"({100 * bound['prompt_share']:.0f}%), {bound['alone']:.0f} in the rest"
        )
    for name, figures in results["systems"].items():
        off = figures.get("off_phases")
        if off:
            lines.append(
                f"{name}, {off['phases']} OFF phases: "
                f"{off['first_10_steps_tokens_per_s']:.0f} offline tokens/s in the first ten "
                f"steps, {off['rest_tokens_per_s']:.0f} in the rest"
            )
        if figures.get("unfinished"):
            lines.append(
                f"{name}: {figures['unfinished']} of {figures['n']} online requests had no whole "
                "answer a minute after the window; they count with what they waited"
            )
    tuning = environment.get("sglang_priority_tuning")
    if tuning:
        lines.append(
            f"sglang-priority runs as {tuning['chosen']}, the lowest P90 TTFT of "
            f"{len(tuning['settings'])} settings"
        )
    clipped = environment.get("clipped") or {}
    if any(clipped.values()):
        lines.append(f"clipped to the engine: {clipped}")
    return "\n".join(lines)


def _row(name: str, s: dict[str, Any]) -> tuple[str, ...]:
    ttft, tbt, excess = s["ttft_ms"] or {}, s["tbt_ms"] or {}, s["excess_ttft_ms"] or {}
    tpot = s.get("tpot_ms") or {}
    ci = excess.get("ci95")

    def share(scale: str, which: str) -> str:
        value = s["attainment"].get(scale, {}).get(which)
        return "-" if value is None else f"{100 * value:.1f}%"

    return (
        name,
        str(s["n"]),
        *(_number(ttft.get(key)) for key in ("p50", "p90", "p99", "max")),
        _number(excess.get("p90")),
        f"[{ci[0]:.0f}, {ci[1]:.0f}]" if ci else "-",
        *(_number(tbt.get(key)) for key in ("p50", "p90", "p99", "max")),
        *(_number(tpot.get(key)) for key in ("p50", "p90", "p99")),
        share("1.0", "ttft"),
        share("1.0", "tbt"),
        share("1.25", "ttft"),
        share("1.25", "tbt"),
        _number(s["offline_tokens_per_s"]),
        f"{100 * s['share_of_ceiling']:.0f}%" if "share_of_ceiling" in s else "-",
        str(s["recomputed_tokens"]),
        str(s["cached_tokens"]),
        str(s["preemptions"]),
    )


def _targets(environment: dict[str, Any], which: str) -> str:
    return ", ".join(_number(slo[which]) for slo in environment.get("slo_ms") or []) or "-"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    # Gaps of a GPU are a few milliseconds: a tenth of one counts.
    return f"{value:.1f}" if 0.0 < abs(value) < 20.0 else f"{value:.0f}"


def _write_requests(runs: Sequence[SystemRun], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("system", "repeat", "name", "class", "input_tokens", "scheduled_s", "sent_s",
             "ttft_ms", "output_tokens", "cached_tokens", "retractions", "error")
        )  # fmt: skip
        for run in runs:
            for r in [*run.result.online, *run.result.offline]:
                writer.writerow(
                    (run.system, run.repeat, r.name, "online" if r.online else "offline",
                     r.input_tokens, f"{r.scheduled_s:.4f}", f"{r.sent_s:.4f}",
                     "" if r.ttft_s is None else f"{r.ttft_s * MS:.2f}", len(r.token_times_s),
                     r.cached_tokens, r.retractions, r.error)
                )  # fmt: skip


def _write_tokens(runs: Sequence[SystemRun], path: Path) -> None:
    """Online tokens one by one (last, how long a cut stream stood), offline tokens per second."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("system", "repeat", "name", "at_s", "gap_ms"))
        for run in runs:
            for r in run.result.online:
                for at_s in r.token_times_s[:1]:
                    writer.writerow((run.system, run.repeat, r.name, f"{at_s:.4f}", ""))
                for at_s, gap_s in zip(r.gap_ends_s, r.gaps_s, strict=True):
                    row = (run.system, run.repeat, r.name, f"{at_s:.4f}", f"{gap_s * MS:.2f}")
                    writer.writerow(row)
            for second, tokens in enumerate(offline_per_second(run)):
                writer.writerow((run.system, run.repeat, "offline", second, tokens))


def offline_per_second(run: SystemRun) -> list[int]:
    """Fresh offline tokens of each second of the window."""
    counts = [0] * max(1, int(run.result.duration_s))
    for record in run.result.offline:
        for index, at_s in enumerate(record.token_times_s):
            second = int(at_s)
            if at_s >= 0.0 and second < len(counts):
                counts[second] += 1
                if index == 0:
                    counts[second] += record.input_tokens - record.cached_tokens
    return counts
