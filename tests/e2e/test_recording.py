"""The recording of README, against the whole service with the fake engine."""

from __future__ import annotations

import asyncio

import pytest

from tests.fixtures.installation import Installation
from tests.recording.__main__ import STEPS, film_of


@pytest.mark.thorough
@pytest.mark.timeout(240)
async def test_two_shells_are_filmed(installation: Installation) -> None:
    key = installation.admin_key
    film = await asyncio.to_thread(film_of, installation.url, key, "fake-model")
    assert "rows" in film or "lines" in film
    for _, typed, _ in STEPS:
        assert typed.replace("'", "").split()[1] in film
    assert film.count("first token after") >= 3
    assert film.count("translateY") > 20
