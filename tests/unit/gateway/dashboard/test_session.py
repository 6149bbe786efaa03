from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.dashboard.session import MAX_AGE, SessionSigner

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def signer() -> SessionSigner:
    return SessionSigner("secret")


def test_a_sealed_session_comes_back_as_it_was(signer: SessionSigner) -> None:
    session = signer.start("key_1", NOW)
    assert session.logged_in
    assert signer.open(signer.seal(session), NOW) == session


def test_a_visitor_is_not_logged_in(signer: SessionSigner) -> None:
    opened = signer.open(signer.seal(signer.start("", NOW)), NOW)
    assert opened is not None
    assert not opened.logged_in


def test_every_changed_character_of_a_cookie_is_noticed(signer: SessionSigner) -> None:
    sealed = signer.seal(signer.start("key_1", NOW))
    for place, char in enumerate(sealed):
        # In the last character of each half some bits are padding and mean nothing.
        if char == "." or place == len(sealed) - 1 or sealed[place + 1] == ".":
            continue
        other = "A" if char != "A" else "B"
        assert signer.open(sealed[:place] + other + sealed[place + 1 :], NOW) is None, place


@pytest.mark.parametrize("value", ["", ".", "a", "a.b.c", "é.é", "AAAA.AAAA", "=.=", "\0.\0"])
def test_nonsense_is_no_session(signer: SessionSigner, value: str) -> None:
    assert signer.open(value, NOW) is None


def test_another_secret_signs_another_session() -> None:
    sealed = SessionSigner("one").seal(SessionSigner("one").start("key_1", NOW))
    assert SessionSigner("two").open(sealed, NOW) is None
    assert SessionSigner(None).open(sealed, NOW) is None


def test_without_a_secret_each_process_has_its_own() -> None:
    one, two = SessionSigner(None), SessionSigner("")
    assert two.open(one.seal(one.start("key_1", NOW)), NOW) is None


@pytest.mark.parametrize(
    ("age", "good"),
    [
        (timedelta(0), True),
        (MAX_AGE, True),
        (MAX_AGE + timedelta(seconds=1), False),
        (timedelta(seconds=-3), True),
        (timedelta(minutes=-1), False),
    ],
)
def test_a_session_ends_by_age(signer: SessionSigner, age: timedelta, good: bool) -> None:
    sealed = signer.seal(signer.start("key_1", NOW))
    assert (signer.open(sealed, NOW + age) is not None) is good


def test_the_token_belongs_to_one_session(signer: SessionSigner) -> None:
    mine, other = signer.start("key_1", NOW), signer.start("key_1", NOW)
    token = signer.csrf_token(mine)
    assert signer.csrf_matches(mine, token)
    assert not signer.csrf_matches(other, token)
    assert not signer.csrf_matches(mine, "")
    assert not signer.csrf_matches(mine, "é" + token[1:])
    assert not SessionSigner("other").csrf_matches(mine, token)


def test_the_cookie_does_not_hold_the_token(signer: SessionSigner) -> None:
    session = signer.start("key_1", NOW)
    assert signer.csrf_token(session) not in signer.seal(session)
