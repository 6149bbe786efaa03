"""State and engine are kept in a checkout, or in the user's data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.data_folder import PACKAGES, data_folder, default_home, installs_to


def test_a_checkout_keeps_everything_in_itself() -> None:
    assert installs_to(PACKAGES, {"XDG_DATA_HOME": "/data"}) == PACKAGES
    assert default_home(PACKAGES, {"XDG_DATA_HOME": "/data"}) == Path(".coserve")


def test_an_installed_package_keeps_it_in_the_data_folder(tmp_path: Path) -> None:
    environ = {"XDG_DATA_HOME": "/data"}
    assert installs_to(tmp_path, environ) == Path("/data/coserve")
    assert default_home(tmp_path, environ) == Path("/data/coserve/state")


@pytest.mark.parametrize("given", [{}, {"XDG_DATA_HOME": ""}, {"XDG_DATA_HOME": "relative"}])
def test_without_an_absolute_path_it_is_below_the_home(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert data_folder(given) == Path("/home/me/.local/share/coserve")
