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
from gateway.auth.roles import Permission, may
from gateway.dashboard.access import Admin, AdminDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.dashboard.resources import Resources
from gateway.dashboard.row_errors import MAX_GROUPED, RowError, grouped
from gateway.tenants.actor import Action
from store.models import Batch, File
from store.repositories import overview, row_browser
from store.repositories.row_browser import STATE_GROUPS, RowDetail
from store.states import RowStatus

router = APIRouter()

PAGE_ROWS: Final = 50
MAX_PARAMETER: Final = 600
MAX_TEXT: Final = 20_000
"""Characters shown of one text."""

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

    row: RowDetail
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
    def attempts(self) -> list[str]:
        """What happened before its end, in words."""
        said = []
        for num, one, many in (
            (self.row.attempt, "failed attempt", "failed attempts"),
            (self.row.num_losses, "engine lost meanwhile", "engines lost meanwhile"),
            (self.row.num_refusals, "refusal by a full engine", "refusals by full engines"),
        ):
            if num:
                said.append(f"{num} {one if num == 1 else many}")
        last = self.row.last_error or {}
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
    """Rows in the order of their lines; one of them with its texts.

    The texts may be another project's, so that who read them is noted.
    """
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
        chosen, file = None, None
        if line_no is not None and may(admin.key.role, Permission.OPERATE):
            chosen = await _chosen(request, admin, work, batch, line_no)
            file = await overview.file_of(work, batch, batch.input_file_id)
        around = {
            "back": await row_browser.next_line(work, batch, line_no or 0, back=True),
            "next": await row_browser.next_line(work, batch, line_no or 0),
            "failed": await row_browser.next_line(work, batch, line_no or 0, failed=True),
        }
    view = None if chosen is None else RowView(chosen, await _request_of(resources, file, chosen))
    kept = {"group": group, "error": query.error, "search": query.search}
    return page(
        request,
        resources,
        admin.session,
        "rows.html",
        admin=admin,
        batch=batch,
        file_name=found.input_name,
        rows=[(row, RowError.of(row.error_line) if row.error_line else None) for row in listed],
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


async def _chosen(
    request: Request, admin: Admin, work: AsyncSession, batch: Batch, line_no: int
) -> RowDetail | None:
    chosen = await row_browser.one(work, batch, line_no)
    if chosen is not None:
        await admin.actor(request).record(
            work,
            Action.BATCH_ROW_READ,
            batch.id,
            project_id=batch.project_id,
            detail={"data": {"line": line_no}},
        )
    return chosen


async def _request_of(
    resources: Resources, file: File | None, row: RowDetail
) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        raw = await resources.file_store.read_range(
            file.storage_key, row.offset_bytes, row.length_bytes
        )
    except StoredObjectMissing:
        return None
    return _mapping(orjson.loads(raw))


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
