"""Whatever the official client sends is known by name: served, or refused with what to do."""

from __future__ import annotations

import json

from tests.openai_fields import BODIES, DATA, installed, unknown


def test_each_field_of_the_data_is_known() -> None:
    data = json.loads(DATA.read_text())
    assert data["fields"].keys() == BODIES.keys()
    assert all(len(names) > 3 for names in data["fields"].values())
    assert unknown(data["fields"]) == []


def test_the_data_has_each_field_of_the_installed_client() -> None:
    """Or the data is older than the client: write it anew."""
    data = json.loads(DATA.read_text())["fields"]
    for path, names in installed()["fields"].items():
        assert set(names) <= set(data[path]), path


def test_what_is_not_known_is_named() -> None:
    assert unknown({"/v1/responses": ["input", "newest_field"]}) == ["/v1/responses newest_field"]
