from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine_adapter.kv.ledger import HostLedger, HostPoolFull, LedgerError


def test_pages_count_once_their_copy_is_done() -> None:
    ledger = HostLedger(8)
    pages = ledger.reserve("a", 3)
    assert (ledger.reserved("a"), ledger.committed("a"), ledger.num_free) == (3, 0, 5)
    with pytest.raises(LedgerError, match="page 1 wanted, 0 committed"):
        ledger.pages("a", 0, 1)
    assert ledger.report("a", 2) == 2
    assert ledger.pages("a", 0, 2) == pages[:2]


def test_a_page_counts_when_every_rank_has_it() -> None:
    ledger = HostLedger(8, num_ranks=2)
    ledger.reserve("a", 4)
    assert ledger.report("a", 4, rank=0) == 0
    assert ledger.report("a", 3, rank=1) == 3


def test_a_full_pool_claims_nothing() -> None:
    ledger = HostLedger(2)
    ledger.reserve("a", 1)
    with pytest.raises(HostPoolFull, match="2 host pages wanted, 1 free"):
        ledger.reserve("b", 2)
    assert ledger.num_free == 1


def test_a_copy_that_ends_after_its_request_is_harmless() -> None:
    ledger = HostLedger(2)
    ledger.reserve("a", 1)
    ledger.drop("a")
    assert ledger.report("a", 1) == 0
    assert ledger.num_free == 2


def test_unreserved_pages_cannot_be_reported() -> None:
    ledger = HostLedger(2)
    ledger.reserve("a", 1)
    with pytest.raises(LedgerError, match="page 2 reported, 1 reserved"):
        ledger.report("a", 2)


class LedgerMachine(RuleBasedStateMachine):
    """Reserve, report, truncate and drop in any order: no host page is lost or held twice."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = HostLedger(16, num_ranks=2)

    rids = st.sampled_from("abc")

    @rule(rid=rids, num_pages=st.integers(0, 6))
    def reserve(self, rid: str, num_pages: int) -> None:
        if num_pages > self.ledger.num_free:
            with pytest.raises(HostPoolFull):
                self.ledger.reserve(rid, num_pages)
        else:
            self.ledger.reserve(rid, num_pages)

    @rule(rid=rids, rank=st.integers(0, 1), part=st.floats(0, 1))
    def report(self, rid: str, rank: int, part: float) -> None:
        before = self.ledger.committed(rid)
        after = self.ledger.report(rid, int(part * self.ledger.reserved(rid)), rank)
        assert before <= after <= self.ledger.reserved(rid)

    @rule(rid=rids, num_pages=st.integers(0, 6))
    def truncate(self, rid: str, num_pages: int) -> None:
        self.ledger.truncate(rid, num_pages)
        assert self.ledger.reserved(rid) <= num_pages

    @precondition(lambda self: self.ledger.num_free < 16)
    @rule(rid=rids)
    def drop(self, rid: str) -> None:
        self.ledger.drop(rid)
        assert self.ledger.reserved(rid) == 0

    @invariant()
    def nothing_is_lost(self) -> None:
        self.ledger.check()


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_check_sees_a_page_held_twice() -> None:
    ledger = HostLedger(4)
    taken = ledger.reserve("a", 1)
    ledger._free.append(taken[0])
    with pytest.raises(LedgerError, match="do not make 4"):
        ledger.check()
