"""Secrets come from the environment or from files it names, and stay out of what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from batch.settings import BatchSettings
from coserve.settings import LocalSettings
from gateway.settings import GatewaySettings
from service.secret_files import SECRETS, ServiceSettings

URL = "postgresql+psycopg://app:topsecret@db/app"
ALL: tuple[type[ServiceSettings], ...] = (GatewaySettings, BatchSettings, LocalSettings)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name + "_FILE", raising=False)


@pytest.mark.parametrize("settings", ALL)
def test_a_secret_from_a_file(
    settings: type[ServiceSettings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "url").write_text(URL + "\n")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    read = settings()
    assert read.model_dump()["database_url"] == URL
    assert "topsecret" not in repr(read)
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://plain")
    assert settings().model_dump()["database_url"] == "postgresql+psycopg://plain"


def test_every_secret_may_lie_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {name: f"from a file: {name}" for name in SECRETS}
    values["BROKER_URL"] = "redis://from a file: broker"
    values["COSERVE_ENGINE_KEYS"] = "http://engine=from-a-file"
    for name, value in values.items():
        (tmp_path / name).write_text(value)
        monkeypatch.setenv(name + "_FILE", str(tmp_path / name))
    read = GatewaySettings()
    found = {
        read.database_url,
        read.database_replica_url,
        read.broker_url,
        read.secret,
        read.metrics_token,
        read.engine_token,
        read.engine_keys,
    }
    assert found == set(values.values())
    assert "from a file" not in repr(read)
    assert "from-a-file" not in repr(read)


def test_a_file_that_cannot_be_read_is_named_and_not_its_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COSERVE_SECRET_FILE", str(tmp_path / "none"))
    with pytest.raises(SettingsError, match=r"COSERVE_SECRET_FILE: .*FileNotFoundError"):
        GatewaySettings()


def test_a_wrong_value_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSERVE_PORT", "sk-coserve-pasted-by-mistake")
    with pytest.raises(ValidationError) as refused:
        GatewaySettings()
    assert "pasted" not in str(refused.value)
