from __future__ import annotations

from engine_adapter.client.rid import RID_LENGTH, is_rid, new_rid


def test_ids_are_unique_and_none_is_a_prefix_of_another() -> None:
    rids = {new_rid() for _ in range(1000)}
    assert len(rids) == 1000
    assert {len(rid) for rid in rids} == {RID_LENGTH}
    assert all(is_rid(rid) for rid in rids)


def test_what_is_no_id() -> None:
    for text in ("", "a", "A" * 32, "g" * 32, "a" * 31, "a" * 33):
        assert not is_rid(text)
