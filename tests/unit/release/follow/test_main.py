"""What a person does after a release was followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_adapter.sglang.versions.promises import signed_versions
from release.follow.__main__ import what_is_left
from release.follow.candidate import Candidate, Outcome

PROMISES = Outcome("promises", "1 to mend, 0 to read", passed=False)
TEST = Outcome("gateway", "FAILED in 9 s", passed=False)


@pytest.mark.parametrize(
    ("failed", "signs", "said"),
    [
        ([PROMISES], False, "It would refuse to start."),
        ([TEST], True, "Not signed: gateway."),
        ([], True, "Signed in files"),
        ([], False, "Nothing stands in the way"),
    ],
)
def test_what_is_left_follows_from_what_failed(
    failed: list[Outcome], signs: bool, said: str
) -> None:
    assert what_is_left("9.9.9", failed, signs=signs).startswith(said)


def test_each_signed_release_has_the_lists_that_another_begins_as() -> None:
    for version in signed_versions():
        candidate = Candidate.of(Path(f"sglang-{version}-py3-none-any.whl"))
        assert candidate.near == version
        for device in ("cpu", "cuda"):
            assert f"sglang=={version}" in candidate.model_list(device).read_text()
    assert what_is_left(signed_versions()[0], [], signs=False) == "It is signed."
