from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from engine_adapter.sglang.garbage import freezing


def test_the_first_request_alone_freezes(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: sent.append("here"))
    structs = SimpleNamespace(FreezeGCReq=lambda: "scheduler")
    monkeypatch.setitem(sys.modules, "sglang.srt.managers.io_struct", structs)
    manager = SimpleNamespace(event_loop=None, _dispatch_to_scheduler=sent.append)

    def create_loop(manager: Any) -> None:
        manager.event_loop = manager.event_loop or object()

    for _ in range(3):
        freezing(create_loop, manager)
    assert sent == ["scheduler", "here"]
