"""What runs now, in one look: for `coserve status` and `coserve top`.

The supervisor's state file says which parts there are, `/statusz` how what stands behind the
gateway is, the database what chat gets and what waits. Whatever does not answer is null.
"""

from __future__ import annotations

import asyncio
import json
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import unix_s
from batch.extension import extend
from coserve.local.database import brief_database
from coserve.local.lock import Owner
from coserve.local.probes import statusz
from coserve.local.supervisor import STATE_FILE
from gateway.history.reading import CHART_SPANS, NOW_S, History, Moment, read
from gateway.verdict.judge import MIN_JUDGED
from store.models import DEFAULT_ORGANIZATION_ID
from store.repositories import overview, progress, statements
from store.schema import stored_schema

MAX_BATCHES: Final = 12
SERIES: Final = ("engine", "ttft:online", "tbt:online")
SPAN: Final = CHART_SPANS["15m"]


def what_runs(owner: Owner, home: Path, database_url: str | None) -> dict[str, Any]:
    """Everything of one moment, in the shape of `coserve status --json` (docs/cli.md)."""
    root = owner.url
    said = statusz(root)
    models = said.get("models") or []
    behind = said.get("parts") or {}
    seen: dict[str, Any] = {
        "pid": owner.pid,
        "version": version("coserve"),
        "versions": {
            "coserve": version("coserve"),
            "python": platform.python_version(),
            "schema": None,
            "engines": (behind.get("engine") or {}).get("versions") or [],
        },
        "urls": {
            "api": f"{root}/v1" if root else None,
            "dashboard": f"{root}/admin" if root else None,
            "metrics": f"{root}/metrics" if root else None,
        },
        "home": str(home),
        "status": said.get("status"),
        "verdict": said.get("verdict"),
        "parts": parts_of(home),
        "behind": {name: {"ok": one["ok"], "why": one["why"]} for name, one in behind.items()},
        "models": models,
        "profile": (behind.get("engine") or {}).get("profile"),
        "queue": None,
        "online": None,
        "tokens_per_s": None,
        "memory": None,
        "batches": [],
    }
    if database_url is not None:
        models_up = {one["id"] for one in models if one["up"]}
        found = asyncio.run(_from_database(database_url, models_up))
        seen["versions"]["schema"] = found.pop("schema", None)
        seen.update(found)
    return seen


def parts_of(home: Path) -> list[dict[str, Any]]:
    """The supervised parts; none while the supervisor starts."""
    try:
        state: Mapping[str, Any] = json.loads((home / STATE_FILE).read_text())
    except (OSError, ValueError):
        return []
    now_s = time.monotonic()
    names = ("name", "state", "pid", "restarts", "log")
    return [
        {**{name: part[name] for name in names}, "for_s": round(now_s - part["since_s"], 1)}
        for part in state["parts"]
    ]


async def _from_database(url: str, models_up: set[str]) -> dict[str, Any]:
    try:
        async with brief_database(url) as database, database.snapshot() as session:
            history = await read(session, SPAN, SERIES)
            return {
                "schema": await stored_schema(session),
                **figures_of(history),
                **await _queue(session, models_up),
            }
    except (SQLAlchemyError, OSError):
        return {}


def figures_of(history: History) -> dict[str, Any]:
    """What chat got and what was computed in the last minute, and in time over `SPAN`."""
    now, whole = history.last(NOW_S), history.whole
    total = now.all_engines
    offline = total.harvested_tokens - total.flex_tokens
    return {
        "online": {of: _latency(now, whole, of) for of in ("ttft", "tbt")},
        "tokens_per_s": {
            "online": now.per_s(total.online_tokens),
            "flex": now.per_s(total.flex_tokens),
            "offline": now.per_s(offline),
        },
        "memory": {
            "device": total.kv_held / total.kv_samples if total.kv_samples else None,
            "host": total.host_held / total.host_samples if total.host_samples else None,
        },
    }


def _latency(now: Moment, whole: Moment, of: str) -> dict[str, Any]:
    recent, earlier = now.of(f"{of}:online"), whole.of(f"{of}:online")
    return {
        "num": recent.num,
        **{f"p{p}_s": recent.quantile_s(p / 100) for p in (50, 90, 99)},
        # A share of a few is chance, as in the verdict.
        "in_time": recent.share_in_time if recent.judged >= MIN_JUDGED else None,
        "in_time_15m": earlier.share_in_time if earlier.judged >= MIN_JUDGED else None,
    }


async def _queue(session: AsyncSession, models_up: set[str]) -> dict[str, Any]:
    totals = await overview.totals(session, DEFAULT_ORGANIZATION_ID)
    due = await overview.due(session, DEFAULT_ORGANIZATION_ID, limit=MAX_BATCHES)
    readings = await progress.read_batches(session, [row.batch.id for row in due])
    service = await progress.read_service(session)
    now = await statements.now(session)
    batches = []
    for row in due:
        batch = row.batch
        said = extend(batch, readings.get(batch.id), service, now=now, models_up=models_up)
        batches.append(
            {
                "id": batch.id,
                "status": batch.status,
                "file": row.input_name,
                "total": batch.num_total,
                "completed": batch.num_completed,
                "failed": batch.num_failed,
                "at_engine": row.num_running,
                "expires_at": unix_s(batch.expires_at),
                "predicted_finish_at": said.predicted_finish_at,
                "waiting_reason": said.waiting_reason,
                "paused": said.paused,
            }
        )
    return {
        "queue": {"live_batches": totals.of("live"), "open_rows": totals.open_rows},
        "batches": batches,
    }
