from __future__ import annotations

from pathlib import Path

from coserve.commands.up import measuring_lines
from coserve.settings import LocalSettings


def test_measuring_is_told_until_there_is_a_profile(tmp_path: Path) -> None:
    settings = LocalSettings(home=tmp_path)
    assert "measures" in measuring_lines(settings, {})[0]
    assert measuring_lines(settings, {"COSERVE_POLICY": "off"}) == []
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "m.json").touch()
    assert measuring_lines(settings, {}) == []


def test_engines_elsewhere_are_not_spoken_of(tmp_path: Path) -> None:
    settings = LocalSettings.model_validate({"home": tmp_path, "ENGINE_URLS": "http://e:1"})
    assert measuring_lines(settings, {}) == []
