from __future__ import annotations

import pytest

from engine_adapter.scheduling.snapshot import Resources, reserved_slots


@pytest.mark.parametrize(
    ("total", "share", "reserved"),
    [(24, 0.25, 6), (2, 0.25, 1), (1, 0.25, 0), (24, 0.0, 0), (10, 0.99, 9)],
)
def test_some_slots_are_kept_for_online_but_never_all(
    total: int, share: float, reserved: int
) -> None:
    assert reserved_slots(total, share) == reserved


def test_a_share_of_one_would_lock_offline_out() -> None:
    with pytest.raises(ValueError, match=r"give a number in \[0, 1\)"):
        reserved_slots(24, 1.0)


def test_evictable_pages_are_available() -> None:
    assert Resources(16, 16, 10, free_pages=3, evictable_pages=4).available_pages == 7
