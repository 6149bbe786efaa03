"""The menu, and where an action leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from starlette.responses import RedirectResponse, Response


@dataclass(frozen=True, slots=True)
class Entry:
    """One word of the menu.

    Attributes:
        name: What it is called.
        page: Its first part of the path; empty is the overview.
        needs: What a role must allow to see it; empty: nothing.
        pages: The pages it opens, if they are several: they have a menu of their own.
    """

    name: str
    page: str
    needs: str = ""
    pages: tuple[Entry, ...] = ()


MENU: Final = (
    Entry("Overview", ""),
    Entry("Batches", "batches"),
    Entry("Playground", "playground", "operate"),
    Entry(
        "Engines",
        "engines",
        pages=(
            Entry("Engines", "engines"),
            Entry("Scheduler", "scheduler"),
            Entry("Isolation", "isolation"),
        ),
    ),
    Entry(
        "Admin",
        "projects",
        pages=(
            Entry("Projects", "projects"),
            Entry("Webhooks", "webhooks"),
            Entry("Usage", "usage"),
            Entry("Audit log", "audit", "audit"),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Menu:
    """What one page shows of the menu.

    Attributes:
        entries: Each with whether the page is there.
        section: Name of the entry whose pages are shown; empty: it is a page itself.
        pages: Those pages, each with whether it is this one.
    """

    entries: list[tuple[Entry, bool]]
    section: str
    pages: list[tuple[Entry, bool]]


def menu(path: str, root: str, may: Mapping[str, bool]) -> Menu:
    """The menu on the page at `path`; `may` says what the role is allowed, by permission."""
    here = path.removeprefix(root).strip("/").partition("/")[0]

    def shown(entries: tuple[Entry, ...]) -> list[tuple[Entry, bool]]:
        return [
            (one, here == one.page or here in [page.page for page in one.pages])
            for one in entries
            if not one.needs or may[one.needs]
        ]

    entries = shown(MENU)
    within = next((entry for entry, is_here in entries if is_here and entry.pages), None)
    return Menu(entries, within.name if within else "", shown(within.pages) if within else [])


def go_to_batch(request: Request, batch_id: str) -> Response:
    """To a batch's page; works for forms and for scripts that follow no redirect."""
    path = f"{request.scope['root_path']}/batches/{batch_id}"
    if request.headers.get("hx-request") == "true":
        return Response(status_code=204, headers={"hx-redirect": path})
    return RedirectResponse(path, 303)
