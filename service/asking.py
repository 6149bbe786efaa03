"""Whose work the current task does: what all share is given to projects by turns."""

from __future__ import annotations

from contextvars import ContextVar

_project_id: ContextVar[str] = ContextVar("project_id", default="")


def asks_for(project_id: str) -> None:
    """Whose work it is from here on, in this task and those that it starts; empty: nobody's."""
    _project_id.set(project_id)


def asking() -> str:
    """The id of the project whose work the current task does; empty for nobody's."""
    return _project_id.get()
