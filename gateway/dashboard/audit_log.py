"""The audit log of an organisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.batch_shapes import may_be_id
from gateway.dashboard.access import AuditorDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.tenants.actor import Action
from store.models import AuditEntry
from store.repositories import audit, overview, statements
from store.repositories.audit import AuditFilter

router = APIRouter()

PAGE_ENTRIES = 50
LOGINS = (str(Action.LOGIN),)


_PAGES: Final = {"batch_": "batches", "proj_": "projects"}
"""How the id of something with a page of its own begins, and where its page is."""


@dataclass(frozen=True)
class EntryView:
    """How one entry is shown.

    Attributes:
        entry: What was done.
        project_name: Of the project that it was done in, if any.
        target_name: Of what it was done to: the input file of a batch.
    """

    entry: AuditEntry
    project_name: str | None
    target_name: str | None

    @property
    def target_id(self) -> str:
        """What it was done to."""
        return self.entry.target_id

    @property
    def target_path(self) -> str | None:
        """The page of what it was done to, if there is one."""
        for prefix, pages in _PAGES.items():
            if self.target_id.startswith(prefix):
                return f"{pages}/{self.target_id}"
        return None

    @property
    def details(self) -> Iterator[tuple[str, str]]:
        """What else is said of it, by name."""
        for part in (self.entry.detail or {}).values():
            for name, value in part.items():
                if name != "prefix":
                    yield name, _words(value)


def _words(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@router.get("/audit")
async def audit_page(
    request: Request,
    resources: ResourcesDep,
    admin: AuditorDep,
    after: Annotated[str, Query(max_length=64)] = "",
    action: Annotated[str, Query(max_length=64)] = "",
    logins: bool = False,
) -> Response:
    """Who did what, newest first; logins only if they are asked for."""
    only = AuditFilter((action,)) if action else AuditFilter(without=() if logins else LOGINS)
    async with resources.database.unit_of_work() as work:
        border = None
        if may_be_id(after):
            border = await audit.get(work, admin.organization_id, after)
        found = await audit.page(
            work, admin.organization_id, only=only, after=border, limit=PAGE_ENTRIES + 1
        )
        now = await statements.now(work)
        shown = found[:PAGE_ENTRIES]
        targets = {entry.target_id for entry, _ in shown if entry.target_id.startswith("batch_")}
        names = await overview.input_names(work, admin.organization_id, sorted(targets))
    return page(
        request,
        resources,
        admin.session,
        "audit.html",
        admin=admin,
        entries=[EntryView(entry, project, names.get(entry.target_id)) for entry, project in shown],
        after=after,
        action=action,
        logins=logins,
        next_after=shown[-1][0].id if len(found) > PAGE_ENTRIES else "",
        now=now,
    )
