"""Which process of a container is beat."""

from __future__ import annotations

from pathlib import Path

import pytest

from coserve.commands.health import beat_is_main_process


@pytest.mark.parametrize(
    ("said", "is_beat"),
    [
        (
            b"/venv/bin/python\0-m\0celery\0--quiet\0--app=batch.worker.app\0beat\0--pidfile=\0",
            True,
        ),
        (b"[celery beat] --quiet --app=batch.worker.app beat --pidfile=\0", True),
        (b"[celeryd: worker-sweep@host:MainProcess] -active- (--quiet worker)\0", False),
        (b"/venv/bin/python\0-m\0gateway\0", False),
    ],
)
def test_beat_is_known_by_what_it_calls_itself(said: bytes, is_beat: bool, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "cmdline").write_bytes(said)
    assert beat_is_main_process(tmp_path) is is_beat
