"""Queries of the validation stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Engine, Project


async def try_exclusive(session: AsyncSession, batch_id: str, *, idle_limit_s: float) -> bool:
    """Take the batch's validation for this transaction; false where another one has it.

    Not a lock on the batch's row: whoever cancels meanwhile must not wait for the file to be
    read. The server ends the transaction if it is idle for `idle_limit_s`, so that a stopped
    process cannot hold it for ever.
    """
    await session.execute(
        text("SELECT set_config('idle_in_transaction_session_timeout', :limit, true)"),
        {"limit": str(int(idle_limit_s * 1000))},
    )
    return bool(
        await session.scalar(
            text("SELECT pg_try_advisory_xact_lock(hashtextextended(:id, 10))"), {"id": batch_id}
        )
    )


@dataclass(frozen=True, slots=True)
class Input:
    """A batch that is to be validated, and where its file is."""

    batch_id: str
    project_id: str
    endpoint: str
    storage_key: str


async def inputs(session: AsyncSession, batch_ids: Collection[str]) -> list[Input]:
    """Those of the batches that are to be validated, and whose answers are not used again."""
    found = await session.execute(
        text(
            """
            SELECT b.id AS batch_id, b.project_id, b.endpoint, f.storage_key
            FROM batches b JOIN files f ON f.id = b.input_file_id
            WHERE b.id = ANY(:ids) AND b.status = 'validating' AND b.reuse_s IS NULL
            """
        ),
        {"ids": list(batch_ids)},
    )
    return [Input(**row) for row in found.mappings()]


async def be_heard(session: AsyncSession) -> None:
    """Tell the server that whoever holds this transaction is alive.

    Raises:
        OperationalError: The server has ended it, and others may have what it held.
    """
    await session.execute(text("SELECT 1"))


async def is_wanted(session: AsyncSession, batch_id: str) -> bool:
    """Whether a batch is still to be validated, and its window has not ended."""
    return bool(
        await session.scalar(
            text(
                "SELECT status = 'validating' AND expires_at > statement_timestamp()"
                " FROM batches WHERE id = :id"
            ),
            {"id": batch_id},
        )
    )


async def model_sizes(session: AsyncSession) -> dict[str, list[tuple[int, int, int]]]:
    """Vocabulary, context and hidden size of each model, as its engines told; 0: not told."""
    query = select(Engine.model, Engine.context_tokens, Engine.facts)
    found: dict[str, list[tuple[int, int, int]]] = {}
    for model, context_tokens, facts in await session.execute(
        query.where(Engine.model.is_not(None))
    ):
        told = facts if isinstance(facts, dict) else {}
        vocab_size, hidden_size = (
            told[key] if isinstance(told.get(key), int) else 0
            for key in ("vocab_size", "hidden_size")
        )
        for name, context in {model: context_tokens or 0, **_more_models(told)}.items():
            found.setdefault(name, []).append((vocab_size, context, hidden_size))
    return found


def _more_models(facts: Mapping[str, Any]) -> dict[str, int]:
    """What an engine serves beside its own model, and the context of each; 0: not told."""
    found = facts.get("more_models")
    return found if isinstance(found, dict) else {}


async def served_models(
    session: AsyncSession,
    project_id: str,
    *,
    embeds: bool = False,
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, bool] | None:
    """The models that engines were seen to serve to a project, and whether they suit.

    None before any engine was seen, for a project that may use all.

    Args:
        session: Read only.
        project_id: Whose lines they are.
        embeds: Those suit that make embeddings; else those that generate text.
        aliases: Further names, by what they stand for.
    """
    query = select(Engine.model, Engine.facts).where(Engine.model.is_not(None))
    seen = (await session.execute(query)).all()
    models = await session.scalar(select(Project.models).where(Project.id == project_id))
    allowed = None if models is None else frozenset(models)
    if not seen:
        return None if allowed is None else dict.fromkeys(allowed, True)
    served: dict[str, bool] = {}
    for model, facts in seen:
        suits = bool((facts or {}).get("embeds")) == embeds
        for name in (model or "", *_more_models(facts or {})):
            served[name] = served.get(name, False) or suits
    for alias, wanted in (aliases or {}).items():
        if found := [served[model] for model in wanted if model in served]:
            served[alias] = any(found)
    return {name: suits for name, suits in served.items() if allowed is None or name in allowed}
