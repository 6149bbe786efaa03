from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine_adapter.scheduling.host_ledger import HostLedger, LedgerError

PAGE = 16
POOL = 12


def test_pages_of_a_request_are_a_prefix_of_it() -> None:
    ledger = HostLedger(8)
    first, second = ledger.extend("a", 2), ledger.extend("a", 1)
    assert (ledger.held("a"), ledger.num_free) == (3, 5)
    assert ledger.pages("a", 0, 3) == first + second
    assert ledger.pages("a", 1, 2) == [first[1], *second]


def test_a_full_pool_gives_all_or_nothing() -> None:
    ledger = HostLedger(2)
    kept = ledger.extend("a", 1)
    assert ledger.extend("b", 2) == []
    assert (ledger.num_free, ledger.held("b")) == (1, 0)
    assert ledger.pages("a", 0, 1) == kept, "nothing is evicted for another request"


@pytest.mark.parametrize("num_pages", [0, -1])
def test_no_pages_are_no_pages(num_pages: int) -> None:
    ledger = HostLedger(2)
    assert ledger.extend("a", num_pages) == []
    assert ledger.num_free == 2


def test_only_held_pages_can_be_read_or_kept() -> None:
    ledger = HostLedger(2)
    ledger.extend("a", 1)
    with pytest.raises(LedgerError, match="a: page 2 wanted, 1 held"):
        ledger.pages("a", 0, 2)
    with pytest.raises(LedgerError, match="a: 2 pages to keep, 1 held"):
        ledger.truncate("a", 2)
    with pytest.raises(LedgerError, match="b: page 1 wanted, 0 held"):
        ledger.pages("b", 0, 1)


def test_what_is_given_back_comes_out_in_order() -> None:
    ledger = HostLedger(6)
    pages = ledger.extend("a", 4)
    ledger.drop("a")
    assert ledger.extend("b", 4) == pages


class RequestMachine(RuleBasedStateMachine):
    """Requests as in the engine, on two ranks: each writes its tokens into a made-up host memory.

    Whatever happens, a request finds on both ranks what it wrote, no page is lost or held twice,
    and a page number means the same tokens everywhere.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ranks = [HostLedger(POOL), HostLedger(POOL)]
        self.memory: list[dict[int, tuple[str, int]]] = [{}, {}]
        self.computed: dict[str, int] = {}
        self.on_host: dict[str, int] = {}
        self.retracted: set[str] = set()

    rids = st.sampled_from("abcd")

    def _extend(self, rid: str, num_pages: int) -> bool:
        """All ranks claim the same pages, or none does."""
        first = self.ranks[0].held(rid)
        room = self.ranks[0].num_free
        taken = [ledger.extend(rid, num_pages) for ledger in self.ranks]
        assert taken[0] == taken[1]
        assert len(taken[0]) == (num_pages if 0 < num_pages <= room else 0)
        for memory, pages in zip(self.memory, taken, strict=True):
            memory.update({page: (rid, first + i) for i, page in enumerate(pages)})
        return bool(taken[0])

    def _keep(self, rid: str, num_pages: int) -> None:
        for ledger in self.ranks:
            ledger.truncate(rid, num_pages)

    @rule(rid=rids, num_tokens=st.integers(1, 40))
    def compute(self, rid: str, num_tokens: int) -> None:
        if rid not in self.retracted:
            self.computed[rid] = self.computed.get(rid, 0) + num_tokens

    @precondition(lambda self: self.computed)
    @rule(rid=rids)
    def checkpoint(self, rid: str) -> None:
        new = self.computed.get(rid, 0) // PAGE - self.ranks[0].held(rid)
        if rid not in self.retracted and self._extend(rid, new):
            self.on_host[rid] = self.ranks[0].held(rid) * PAGE

    @precondition(lambda self: self.computed.keys() - self.retracted)
    @rule(rid=rids)
    def retract(self, rid: str) -> None:
        if rid not in self.computed or rid in self.retracted:
            return
        tail = self.computed[rid] - self.on_host.get(rid, 0)
        if 0 < tail < 2 * PAGE and self._extend(rid, -(-tail // PAGE)):
            self.on_host[rid] = self.computed[rid]
        self.retracted.add(rid)

    @precondition(lambda self: self.retracted)
    @rule(rid=rids)
    def restore(self, rid: str) -> None:
        if rid not in self.retracted:
            return
        self.retracted.remove(rid)
        num_tokens = self.on_host.get(rid, 0)
        num_pages = -(-num_tokens // PAGE)
        for ledger, memory in zip(self.ranks, self.memory, strict=True):
            pages = ledger.pages(rid, 0, num_pages)
            assert [memory[page] for page in pages] == [(rid, i) for i in range(num_pages)]
        self.computed[rid] = num_tokens
        self._keep(rid, num_tokens // PAGE)
        self.on_host[rid] = num_tokens // PAGE * PAGE

    @rule(rid=rids)
    def end(self, rid: str) -> None:
        for ledger in self.ranks:
            ledger.drop(rid)
        self.computed.pop(rid, None)
        self.on_host.pop(rid, None)
        self.retracted.discard(rid)

    @invariant()
    def nothing_is_lost(self) -> None:
        for ledger in self.ranks:
            ledger.check()
        for rid in "abcd":
            held = {ledger.held(rid) for ledger in self.ranks}
            assert held == {-(-self.on_host.get(rid, 0) // PAGE)}


TestRequests = RequestMachine.TestCase
TestRequests.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_the_check_sees_a_page_held_twice() -> None:
    ledger = HostLedger(4)
    ledger._free.append(ledger.extend("a", 1)[0])
    with pytest.raises(LedgerError, match="do not make 4"):
        ledger.check()
