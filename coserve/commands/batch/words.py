"""A batch in words: what it is, how it gets on, and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

BatchId = Annotated[str, typer.Argument(help="The id of a batch, batch_...")]


def print_batch(console: Console, batch: dict[str, Any], *, whole: bool = False) -> None:
    """What the batch is, how it gets on, and every error of its file; its life if `whole`."""
    counts = batch["request_counts"]
    console.print(
        f"{batch['id']}: {batch['status']}, {counts['completed']} completed and "
        f"{counts['failed']} failed of {counts['total']}",
        highlight=False,
    )
    for line in [*progress_words(batch), *(_facts(batch) if whole else ())]:
        console.print(line, highlight=False, markup=False)
    for fault in (batch["errors"] or {"data": []})["data"]:
        where = "" if fault["line"] is None else f"line {fault['line']}: "
        console.print(f"{where}{fault['code']}: {fault['message']}", highlight=False, markup=False)


def progress_words(batch: dict[str, Any]) -> list[str]:
    """Reason, pause, predicted end, pace and warning, as far as there are any."""
    ours = batch.get("coserve") or {}
    words = state_words(batch)
    if ours.get("rows_per_s"):
        words.append(f"{ours['rows_per_s']:.1f} rows/s, {ours['tokens_per_s']:,.0f} tokens/s")
    if ours.get("warning"):
        words.append(ours["warning"])
    return words


def state_words(batch: dict[str, Any]) -> list[str]:
    """Why it waits, whether it is paused, and its predicted end."""
    ours = batch.get("coserve") or {}
    words = []
    reason = ours.get("waiting_reason")
    if reason:
        words.append(f"waiting: {reason}")
    if ours.get("paused") and reason != "paused":
        words.append("paused")
    if ours.get("predicted_finish_at"):
        words.append(f"predicted end: {_when(ours['predicted_finish_at'])}")
    if ours.get("predicted_finish_range"):
        earliest, latest = map(_when, ours["predicted_finish_range"])
        words.append(f"between {earliest} and {latest}")
    return words


def _facts(batch: dict[str, Any]) -> Iterator[str]:
    ours = batch.get("coserve") or {}
    yield f"model {batch['model'] or 'not known yet'}, {batch['endpoint']}"
    if there := ours.get("at_engine"):
        states = ", ".join(
            f"{there[name]} {name}"
            for name in ("decoding", "parked", "queued")
            if there[name] is not None
        )
        open_rows = batch["request_counts"]["total"] - sum(
            batch["request_counts"][name] for name in ("completed", "failed")
        )
        yield (
            f"at the engine: {there['rows']}{f' ({states})' if states else ''}, "
            f"waiting: {open_rows - there['rows']}"
        )
    yield f"priority {ours.get('priority', 0)}, window {batch['completion_window']}"
    if ours.get("retry_of"):
        yield f"runs again what {ours['retry_of']} left unanswered"
    for key, value in (batch["metadata"] or {}).items():
        yield f"metadata {key}={value}"
    for event in batch.get("events") or ():
        detail = detail_words(event)
        what = event["event"].replace("_", " ")
        by = f" by {event['actor']}" if event["actor"] else ""
        yield f"{what}{by}: {_when(event['created_at'])}" + (f" ({detail})" if detail else "")
    yield f"window ends: {_when(batch['expires_at'])}"
    usage = batch["usage"]
    if usage:
        yield (
            f"tokens: {usage['input_tokens']:,} in "
            f"({usage['input_tokens_details']['cached_tokens']:,} cached), "
            f"{usage['output_tokens']:,} out"
        )
    for kind in ("input", "output", "error"):
        if batch[f"{kind}_file_id"]:
            yield f"{kind} file: {batch[f'{kind}_file_id']}"


def detail_words(event: dict[str, Any]) -> str:
    """What goes with an event, in words."""
    said = (event["detail"] or {}).items()
    return ", ".join(f"{name.removeprefix('num_').replace('_', ' ')}: {it}" for name, it in said)


def _when(unix_s: int) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
