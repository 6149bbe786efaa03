from __future__ import annotations

from pathlib import Path

from coserve.commands.up import measuring_lines, ready_lines, shown_key
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


def test_the_admin_key_is_shown_on_a_terminal_alone() -> None:
    settings = LocalSettings.model_validate({"home": "/srv/state"})
    shown = {on: shown_key(settings, "sk-secret", terminal=on) for on in (True, False)}
    assert shown == {True: "sk-secret", False: "in /srv/state/admin-key"}
    lines = ready_lines(settings, shown[False], 1.0, 0.0)
    assert "  API key    in /srv/state/admin-key" in lines
    assert "sk-secret" not in "\n".join(lines)
