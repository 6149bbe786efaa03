from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from engine_adapter.scheduling.fit import FitError
from engine_adapter.scheduling.latency import Coefficients
from engine_adapter.scheduling.profile import (
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


def test_what_ran_outside_graphs_is_stored_too(tmp_path: Path) -> None:
    eager = Coefficients(4e-4, 0, 1e-5, 1e-7, 0, 0.09)
    captured = replace(PROFILE, prefill_token_steps=(16, 64), eager_mixed=eager)
    assert load_profile(save_profile(captured, tmp_path), KEY) == captured
    model = captured.model()
    assert (model.prefill_token_steps, model.eager.mixed) == ((16, 64), eager)


def test_a_profile_from_before_graphs_of_prefills_is_read(tmp_path: Path) -> None:
    path = save_profile(PROFILE, tmp_path)
    plain = json.loads(path.read_text())
    for name in ("prefill_token_steps", "eager_prefill", "eager_mixed"):
        del plain[name]
    path.write_text(json.dumps(plain))
    assert load_profile(path, KEY) == PROFILE


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("held_out", []),
        ("decode", 3),
        ("decode", dict.fromkeys(asdict(PROFILE.decode), 0)),
        ("decode_row_steps", "abc"),
        ("decode_row_steps", [0]),
        ("prefill_token_steps", [0]),
        ("eager_mixed", asdict(Coefficients(0, 0, 0, 0, 0, 0))),
        ("num_layers", "x"),
        ("num_layers", 0),
    ],
)
def test_a_part_of_another_type_is_refused(tmp_path: Path, name: str, value: object) -> None:
    path = save_profile(PROFILE, tmp_path)
    plain = json.loads(path.read_text())
    plain[name] = value
    path.write_text(json.dumps(plain))
    with pytest.raises(ProfileError, match="delete it and run 'coserve profile'"):
        load_profile(path)


def test_two_engines_with_one_key_do_not_write_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is between writing and renaming."""
    written: list[Path] = []
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 1)
        patch.setattr(Path, "replace", lambda part, target: written.append(part))
        save_profile(PROFILE, tmp_path)
    path = save_profile(PROFILE, tmp_path)
    assert load_profile(path, KEY) == PROFILE
    assert json.loads(written[0].read_text())["num_layers"] == PROFILE.num_layers


def test_negative_coefficients_in_a_file_are_refused(tmp_path: Path) -> None:
    path = save_profile(PROFILE, tmp_path)
    plain = json.loads(path.read_text())
    plain["decode"]["k_token"] = -1
    path.write_text(json.dumps(plain))
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(path)
