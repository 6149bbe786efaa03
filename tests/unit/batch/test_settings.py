from __future__ import annotations

import pytest

from batch.settings import HEARTBEAT_S, LEASE_STALE_S, BatchSettings


def test_engines_are_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_URLS", " http://one:1/ ,http://two:2,")
    assert BatchSettings().engines == ("http://one:1", "http://two:2")


def test_names_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://somewhere/x")
    monkeypatch.setenv("COSERVE_BATCH_MAX_IN_FLIGHT", "7")
    settings = BatchSettings()
    assert settings.database_url == "postgresql+psycopg://somewhere/x"
    assert settings.batch_max_in_flight == 7


def test_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSERVE_BATCH_MAX_IN_FLIGHT", "0")
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        BatchSettings()


def test_a_heart_beats_several_times_before_it_counts_as_stopped() -> None:
    assert LEASE_STALE_S >= 4 * HEARTBEAT_S
