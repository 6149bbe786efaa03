"""Shared pages come free with the last request that holds them, whatever the order."""

from __future__ import annotations

from itertools import permutations

from engine_adapter.scheduling.request import Release, Request, RequestClass, SharedPages


def request(rid: str, device_pages: int, *shared: SharedPages) -> Request:
    made = Request(rid, RequestClass.OFFLINE, prompt_tokens=100, fill_tokens=100)
    made.device_pages, made.shared = device_pages, shared
    return made


def test_the_last_holder_frees_what_all_shared() -> None:
    """a, b and c share 40 pages; b and c share 6 more below them."""
    head, tail = SharedPages(1, 40, holders=3), SharedPages(2, 6, holders=2)
    requests = [request("a", 43, head), request("b", 51, tail, head), request("c", 47, tail, head)]
    for order in permutations(requests):
        release = Release()
        gained = [release.add(each) for each in order]
        assert sum(gained) == 3 + 5 + 1 + 6 + 40
        assert gained[0] == order[0].freeable_pages


def test_what_somebody_else_holds_is_not_freed() -> None:
    head = SharedPages(1, 40, holders=3)  # the third is none of these
    release = Release()
    assert [release.add(request(rid, 44, head)) for rid in ("a", "b")] == [4, 4]


def test_a_copy_goes_on_by_itself() -> None:
    head = SharedPages(1, 40, holders=2)
    first = Release()
    first.add(request("a", 40, head))
    assert [Release(first).add(request("b", 40, head)) for _ in range(2)] == [40, 40]


def test_a_request_frees_nothing_while_another_holds_all_it_has() -> None:
    head, other = SharedPages(1, 40, holders=2), SharedPages(2, 8, holders=2)
    requests = [request("a", 40, head), request("b", 40, head), request("c", 8, other)]
    release = Release()
    assert sum(release.add(each) for each in requests) == 40
    assert [release.frees_part_of(each) for each in requests] == [True, True, False]
