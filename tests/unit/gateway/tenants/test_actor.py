"""The words of the audit log."""

from __future__ import annotations

from pathlib import Path

from gateway.tenants.actor import Action

ROOT = Path(__file__).parents[4]


def test_every_action_is_documented() -> None:
    page = (ROOT / "docs/tenants.md").read_text()
    assert [action for action in Action if f"`{action}`" not in page] == []
