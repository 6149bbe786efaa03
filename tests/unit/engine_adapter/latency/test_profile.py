from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine_adapter.latency.fit import FitError
from engine_adapter.latency.polynomial import Coefficients
from engine_adapter.latency.profile import (
    Profile,
    ProfileError,
    ProfileKey,
    find_profile,
    load_profile,
    save_profile,
)

KEY = ProfileKey("org/small-model", "cpu-1thread", "tp1", "0.5.16", "bfloat16")
PROFILE = Profile(
    key=KEY,
    decode=Coefficients(1e-3, 0, 1e-5, 0, 0, 0.07),
    prefill=Coefficients(4e-4, 0, 1e-5, 1e-7, 0, 0.07),
    mixed=Coefficients(4e-4, 0, 1e-5, 1e-7, 0, 0.08),
    decode_row_steps=(1, 2, 4),
    held_out={"decode": FitError(3, 0.01, 0.01, 0.02, 0.02)},
    num_layers=30,
    measured_at="2026-01-01T00:00:00Z",
)


def test_a_profile_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    path = save_profile(PROFILE, tmp_path / "profiles")
    assert load_profile(path, KEY) == PROFILE
    assert find_profile(KEY, tmp_path / "profiles") == PROFILE
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_every_part_of_the_key_makes_another_profile(tmp_path: Path) -> None:
    save_profile(PROFILE, tmp_path)
    for other in (
        replace(KEY, model="org/other"),
        replace(KEY, device="AMD EPYC, 2 threads"),
        replace(KEY, parallelism="tp2"),
        replace(KEY, sglang_version="0.5.17"),
        replace(KEY, dtype="float32"),
        replace(KEY, executor="torch_native attention, chunks of 512"),
    ):
        assert find_profile(other, tmp_path) is None


def test_a_profile_of_another_device_is_refused(tmp_path: Path) -> None:
    path = save_profile(PROFILE, tmp_path)
    with pytest.raises(ProfileError, match=r"device 'cpu-1thread' instead of 'gpu'; run"):
        load_profile(path, replace(KEY, device="gpu"))


@pytest.mark.parametrize("damage", ["{", "{}", '{"format": 99}', "[]"])
def test_a_damaged_profile_says_what_to_do(tmp_path: Path, damage: str) -> None:
    path = save_profile(PROFILE, tmp_path)
    path.write_text(damage)
    with pytest.raises(ProfileError, match="delete it and run 'coserve profile'"):
        load_profile(path)


def test_negative_coefficients_in_a_file_are_refused(tmp_path: Path) -> None:
    path = save_profile(PROFILE, tmp_path)
    plain = json.loads(path.read_text())
    plain["decode"]["k_token"] = -1
    path.write_text(json.dumps(plain))
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(path)
