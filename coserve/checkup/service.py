"""What runs: database, broker and engines, and what the gateway says is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from coserve.checkup.finding import Finding
from coserve.local.database import brief_database
from coserve.local.lock import Owner
from coserve.local.probes import http_get
from engine_adapter.client.engine_address import shown, why_unusable
from engine_adapter.client.engine_facts import read_facts
from gateway.verdict.remedies import in_words
from service.broker import Broker
from store.repositories import engine as engine_registry
from store.schema import HOW, NEEDED, WrongDatabase, is_newer, reached, stored_schema

_BROKER_LIMIT_S = 5.0


async def database(url: str | None) -> Finding:
    """Whether the database answers, and has the tables of this version."""
    if url is None:
        return Finding("database", "unknown", "nothing runs here; coserve up starts one")
    try:
        async with brief_database(url) as there, there.unit_of_work() as session:
            found = await stored_schema(session)
    except (SQLAlchemyError, OSError) as error:
        fix = "Start it, or correct DATABASE_URL."
        why = f"it does not answer ({type(error).__name__})"
        return Finding("database", "bad", why, fix)
    if found is None:
        return Finding("database", "bad", "it has no tables of coserve", HOW)
    try:
        if not is_newer(found) and reached(found) < NEEDED:
            return Finding("database", "bad", f"at schema {found}, {NEEDED} is needed", HOW)
    except WrongDatabase as error:
        return Finding("database", "bad", "not this version's", str(error))
    return Finding("database", "good", f"it answers, at schema {found}")


def issues(verdict: Mapping[str, Any]) -> Iterator[Finding]:
    """What the gateway says is wrong, as on the overview of the dashboard."""
    for issue in verdict.get("issues", ()):
        found = f"{issue['what']}. {issue['cause']}" if issue["cause"] else issue["what"]
        yield Finding("verdict", issue["tone"], found, in_words(issue["code"]))


def broker(part: Mapping[str, Any] | None, given: Broker | None) -> Finding:
    """Whether the broker answers the gateway, or us where no gateway runs.

    Args:
        part: What `/statusz` says of it.
        given: The broker of BROKER_URL.
    """
    if part is not None:
        return _told("broker", part, "coserve logs valkey", "it answers the gateway")
    if given is None:
        return Finding("broker", "unknown", "nothing runs here; coserve up starts one")
    if fault := asyncio.run(given.fault(_BROKER_LIMIT_S)):
        return Finding(
            "broker", "bad", f"it does not answer ({fault})", "Start it, or correct BROKER_URL."
        )
    return Finding("broker", "good", "it answers")


def gateway_engines(part: Mapping[str, Any] | None, owner: Owner | None) -> Finding:
    """Whether an engine answers the gateway, by what `/statusz` says of them."""
    if part is not None:
        return _told("engine", part, "coserve logs engine", "one answers the gateway")
    if owner is None:
        return Finding("engine", "unknown", "nothing runs here; coserve up starts one")
    return Finding("engine", "bad", "the gateway does not answer", "Look at: coserve status")


def _told(name: str, part: Mapping[str, Any], command: str, good: str) -> Finding:
    if part["ok"]:
        return Finding(name, "good", good)
    return Finding(name, "bad", str(part["why"]), f"Look at: {command}")


async def engines(url: str, named: Sequence[str], *, reached: bool) -> list[Finding]:
    """Whether each engine in use runs our scheduler, asked of the engine itself.

    Args:
        url: The database's.
        named: Addresses of ENGINE_URLS.
        reached: Whether at least one answers the gateway.
    """
    try:
        async with brief_database(url) as there, there.unit_of_work() as session:
            urls = await engines_in_use(session, named)
    except SQLAlchemyError:
        return []
    found = [await asyncio.to_thread(_engine, one) for one in urls]
    return [only_busy(found[0])] if reached and len(found) == 1 else found


async def engines_in_use(session: AsyncSession, named: Sequence[str]) -> list[str]:
    """Addresses that the gateway uses; where none is named, it started one of its own.

    Each start gives that one a new port, so the one seen last is meant.
    """
    own = [
        (one.seen_at, one.url)
        for one in await engine_registry.list_all(session)
        if one.added_at is None and one.seen_at is not None
    ]
    static = named or [url for _, url in sorted(own)[-1:]]
    return [one.url for one in await engine_registry.in_use(session, static)]


def only_busy(engine: Finding) -> Finding:
    """What was found of the only engine, which the gateway reaches: one that is silent is busy."""
    if engine.state != "bad":
        return engine
    slow = "it answers the gateway, but did not say in time what it runs"
    return Finding(engine.name, "warn", slow, "It is busy: ask again.")


def _engine(url: str) -> Finding:
    name = f"engine {shown(url)}"
    if why := why_unusable(url):
        fix = "Remove it with coserve engine remove, and add the right address."
        return Finding(name, "bad", f"it is left out: {why}", fix)
    reply = http_get(f"{url}/server_info")
    if reply is None or reply.status != 200:
        return Finding(name, "bad", "it does not answer", "Look at: coserve logs engine")
    try:
        facts = read_facts(json.loads(reply.body))
    except ValueError:
        return Finding(name, "warn", "it does not say what it is", "Is it SGLang?")
    sglang = f"SGLang {facts.version}".strip()
    if not facts.runtime:
        fix = "Start it with our plugin (docs/engine.md), or batch work delays chat."
        return Finding(name, "warn", f"{sglang} without our scheduler", fix)
    policy = facts.reported("policy") or "unknown"
    return Finding(name, "good", f"{sglang}, our scheduler is live, policy {policy}")
