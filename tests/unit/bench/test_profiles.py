"""The stored profiles of CPU engines that benchmarks replay are still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.paths import DATA, RESULTS
from engine_adapter.scheduling.profile import load_profile

PROFILES = [*DATA.glob("*.json"), *RESULTS.glob("coserve/*-profile.json")]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_a_stored_profile_is_of_the_format_that_is_read(path: Path) -> None:
    assert load_profile(path).num_layers > 0
