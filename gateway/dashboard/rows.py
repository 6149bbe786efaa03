"""The rows of one batch: found by state or custom id, and each with its prompt and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.batch_errors import StoredObjectMissing
from api.errors import NotFound
from batch.files import ByteRange
from batch.states import TERMINAL_BATCH, TERMINAL_ROW
from gateway.auth.roles import Permission, may
from gateway.dashboard.access import AdminDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.dashboard.resources import Resources
from gateway.dashboard.row_errors import MAX_GROUPED, RowError, grouped
from gateway.tenants.actor import Action, Actor
from store.models import Batch, File
from store.repositories import overview, row_browser
from store.repositories.overview import BatchOverview
from store.repositories.row_browser import STATE_GROUPS, RowDetail, RowSummary
from store.states import RowStatus

router = APIRouter()

PAGE_ROWS: Final = 50
MAX_PARAMETER: Final = 600
MAX_TEXT: Final = 20_000
"""Characters shown of one text."""
FIRST_CHARS: Final = 90
"""Characters of a text in the list."""
NORMAL_ENDS: Final = frozenset({"", "stop", "tool_calls", "embeddings"})
"""Finish reasons of an answer that is whole."""

STATES: Final[Mapping[str, tuple[str, str]]] = {
    RowStatus.PENDING: ("waiting", "idle"),
    RowStatus.LEASED: ("at the engine", "run"),
    RowStatus.SUCCEEDED: ("succeeded", "good"),
    RowStatus.ERRORED: ("failed", "bad"),
    RowStatus.CANCELLED: ("stopped by a cancel", "warn"),
    RowStatus.EXPIRED: ("stopped by the window", "warn"),
}
GROUPS: Final = {"": "All", "failed": "Failed", "succeeded": "Succeeded", "engine": "At the engine",
                 "waiting": "Waiting", "stopped": "Stopped"}  # fmt: skip


class RowsQuery(BaseModel):
    """What an address of the page may say.

    Attributes:
        group: One of `STATE_GROUPS`; anything else means all.
        error: The code of an error; only rows that failed with it.
        search: Part of a custom id.
        after: The page begins behind this line.
        line: The row whose texts are shown.
    """

    group: str = ""
    error: str = Field(default="", max_length=200)
    search: str = Field(default="", max_length=512)
    after: int = Field(default=0, ge=0, le=2**31 - 1)
    line: int | None = Field(default=None, ge=1, le=2**31 - 1)


@dataclass(frozen=True)
class Message:
    """One text of a prompt or an answer, and whose it is."""

    role: str
    text: str

    @property
    def shown(self) -> str:
        return self.text[:MAX_TEXT]

    @property
    def is_cut(self) -> bool:
        """Whether there is more."""
        return len(self.text) > MAX_TEXT


@dataclass(frozen=True)
class RowView:
    """One row as the page shows it.

    Attributes:
        row: From the database.
        request: Its line of the input; none if the file is not there any more.
    """

    row: RowDetail | RowSummary
    request: dict[str, Any] | None

    @property
    def state(self) -> tuple[str, str]:
        """What to call its status, and the kind of colour that goes with it."""
        return STATES[self.row.status]

    @property
    def body(self) -> dict[str, Any]:
        """The body of its request."""
        return _mapping((self.request or {}).get("body"))

    @property
    def first_words(self) -> str:
        """How what was asked begins: of a chat the last message of a user."""
        asked = [one for one in self.prompt if one.role in ("user", "prompt")]
        return _first_words(asked[-1].text) if asked else ""

    @property
    def answer_words(self) -> str:
        """How the first answer begins."""
        answers = self.answers
        return _first_words(answers[0].text) if answers else ""

    @property
    def finish(self) -> tuple[str, str]:
        """Why the first answer ended, and the kind of colour: `warn` if it is not whole."""
        reason = self.answers[0].role if self.answers else ""
        return reason, "" if reason in NORMAL_ENDS else "warn"

    @property
    def took_s(self) -> float | None:
        """How long the engine took for it."""
        return None if self.row.took_ms is None else self.row.took_ms / 1000

    @property
    def prompt(self) -> list[Message]:
        """What was asked."""
        messages = self.body.get("messages")
        if isinstance(messages, list):
            return [Message(str(m.get("role", "")), text_of(m.get("content"))) for m in messages]
        asked = self.body.get("prompt", self.body.get("input"))
        return [] if asked is None else [Message("prompt", text_of(asked))]

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Everything else of its request."""
        return [
            (
                key,
                text
                if len(text := text_of(value)) <= MAX_PARAMETER
                else f"{text[:MAX_PARAMETER]} …",
            )
            for key, value in self.body.items()
            if key not in ("messages", "prompt", "input")
        ]

    @property
    def _result(self) -> dict[str, Any]:
        return _mapping(orjson.loads(self.row.line)) if self.row.line else {}

    @property
    def answers(self) -> list[Message]:
        """What was answered, one for each choice."""
        body = _mapping(_mapping(self._result.get("response")).get("body"))
        found = []
        for choice in body.get("choices") or []:
            message = _mapping(choice.get("message"))
            said = choice.get("text") if not message else message.get("content")
            calls = message.get("tool_calls")
            text = text_of(said) if said is not None else text_of(calls)
            found.append(Message(str(choice.get("finish_reason") or ""), text))
        if not found and body.get("data"):
            found.append(Message("embeddings", f"{len(body['data'])} vectors"))
        return found

    @property
    def error(self) -> str:
        """Why it failed: status, code and message; empty for one that did not."""
        error = RowError.of(self.row.line) if self.row.line else None
        return "" if error is None else error.words

    @property
    def again(self) -> bool:
        """Whether it has ended and its request is there, so that it can be run again."""
        return self.row.status in TERMINAL_ROW and self.request is not None


def attempts_of(row: RowDetail) -> list[str]:
    """What happened before its end, in words."""
    said = []
    for num, one, many in (
        (row.attempt, "failed attempt", "failed attempts"),
        (row.num_losses, "engine lost meanwhile", "engines lost meanwhile"),
        (row.num_refusals, "refusal by a full engine", "refusals by full engines"),
    ):
        if num:
            said.append(f"{num} {one if num == 1 else many}")
    last = row.last_error or {}
    if last.get("message"):
        said.append(f"last error: {last['message']}")
    return said


@router.get("/batches/{batch_id}/rows")
async def rows_page(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    batch_id: str,
    query: Annotated[RowsQuery, Query()],
) -> Response:
    """Rows in the order of their lines, and how their texts begin; one of them with its texts.

    The texts may be another project's, so that who read them is noted.
    """
    reads = may(admin.key.role, Permission.OPERATE)
    group = query.group if query.group in STATE_GROUPS else ""
    async with resources.database.unit_of_work() as work:
        found = await overview.one(work, admin.organization_id, batch_id[:64])
        if found is None:
            raise NotFound(f"No batch found with id '{batch_id[:64]}'.")
        batch = found.batch
        listed, has_more = await row_browser.page(
            work,
            batch,
            row_browser.Wanted(group, query.error, query.search),
            after=query.after,
            limit=PAGE_ROWS,
        )
        failures: Sequence[bytes] = ()
        if group == "failed" or query.error:
            failures = await row_browser.failures(work, batch, limit=MAX_GROUPED)
        line_no = query.line
        chosen = None
        if line_no is not None and reads:
            chosen = await row_browser.one(work, batch, line_no)
        file = await overview.file_of(work, batch, batch.input_file_id) if reads else None
        if reads and (listed or chosen):
            await _note(admin.actor(request), work, batch, listed, chosen)
        around = {
            "back": await row_browser.next_line(work, batch, line_no or 0, back=True),
            "next": await row_browser.next_line(work, batch, line_no or 0),
            "failed": await row_browser.next_line(work, batch, line_no or 0, failed=True),
        }
    asked = await _requests(resources, file, [*listed, *([chosen] if chosen else [])], chosen)
    view = None if chosen is None else RowView(chosen, asked.get(chosen.line_no))
    kept = {"group": group, "error": query.error, "search": query.search}
    return page(
        request,
        resources,
        admin.session,
        "rows.html",
        admin=admin,
        batch=batch,
        file_name=found.input_name,
        rows=[
            (RowView(row, asked.get(row.line_no)), RowError.of(row.line) if row.line else None)
            for row in listed
        ],
        counts=_counts(found),
        attempts=[] if chosen is None else attempts_of(chosen),
        errors=grouped(failures),
        error=query.error,
        counted=len(failures) if len(failures) == MAX_GROUPED else None,
        states=STATES,
        groups=GROUPS,
        group=group,
        search=query.search,
        line=line_no,
        view=view,
        around=around,
        kept=urlencode({k: v for k, v in kept.items() if v}),
        after=query.after,
        last=listed[-1].line_no if has_more else None,
    )


async def _note(
    actor: Actor,
    work: AsyncSession,
    batch: Batch,
    listed: Sequence[RowSummary],
    chosen: RowDetail | None,
) -> None:
    """Have the audit log say whose texts were shown: the first words of a list, and all of one."""
    data: dict[str, Any] = {} if chosen is None else {"line": chosen.line_no}
    if listed:
        data["listed"] = f"{listed[0].line_no} to {listed[-1].line_no}"
    await actor.record(
        work,
        Action.BATCH_ROW_READ,
        batch.id,
        project_id=batch.project_id,
        detail={"data": data},
    )


def _counts(found: BatchOverview) -> dict[str, int]:
    """How many rows each of `GROUPS` has."""
    batch = found.batch
    ended = batch.num_completed + batch.num_failed
    live = batch.status not in TERMINAL_BATCH
    return {
        "": batch.num_total,
        "failed": batch.num_failed - batch.num_stopped,
        "succeeded": batch.num_completed,
        "engine": found.num_running,
        "waiting": max(0, batch.num_total - ended - found.num_running) if live else 0,
        "stopped": batch.num_stopped,
    }


async def _requests(
    resources: Resources,
    file: File | None,
    rows: Sequence[RowDetail | RowSummary],
    chosen: RowDetail | None,
) -> dict[int, dict[str, Any]]:
    """Requests of rows by line, where the file is there; of the chosen one at any length."""
    wanted = {
        row.line_no: ByteRange(row.offset_bytes, row.length_bytes)
        for row in rows
        if row is chosen or row.length_bytes <= row_browser.LISTED_BYTES
    }
    if file is None or not wanted:
        return {}
    try:
        lines = await resources.file_store.read_ranges(file.storage_key, [*wanted.values()])
    except StoredObjectMissing:
        return {}
    return {
        line_no: _mapping(orjson.loads(raw)) for line_no, raw in zip(wanted, lines, strict=True)
    }


def _first_words(text: str) -> str:
    words = " ".join(text[: 4 * FIRST_CHARS].split())
    return words if len(words) <= FIRST_CHARS else f"{words[:FIRST_CHARS].rstrip()} …"


def text_of(content: Any) -> str:
    """A text, the texts of a list of parts, or JSON of anything else."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        parts: Sequence[dict[str, Any]] = content
        if all("text" in part for part in parts):
            return "\n".join(str(part["text"]) for part in parts)
    return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()


def _mapping(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
