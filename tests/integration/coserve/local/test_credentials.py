"""The admin key: made once, kept with its database, replaced when revoked."""

from __future__ import annotations

from pathlib import Path

from coserve.local.credentials import ADMIN_KEY_FILE, ensure_admin_key, session_secret
from store.repositories import key as keys
from store.session import Database


async def test_the_key_is_made_once_and_only_its_owner_reads_it(
    database: Database, tmp_path: Path
) -> None:
    first, made = await ensure_admin_key(database, tmp_path)
    assert made
    assert await ensure_admin_key(database, tmp_path) == (first, False)
    file = tmp_path / ADMIN_KEY_FILE
    assert file.read_text() == f"{first}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    async with database.unit_of_work() as session:
        found = await keys.find_by_plaintext(session, first)
    assert found is not None
    assert found.role == "admin"


async def test_a_new_database_gets_the_key_of_the_file(database: Database, tmp_path: Path) -> None:
    plaintext = f"{keys.KEY_PREFIX}from-an-earlier-database"
    (tmp_path / ADMIN_KEY_FILE).write_text(plaintext)
    assert await ensure_admin_key(database, tmp_path) == (plaintext, False)
    async with database.unit_of_work() as session:
        assert await keys.find_by_plaintext(session, plaintext) is not None


async def test_a_revoked_key_is_replaced_not_revived(database: Database, tmp_path: Path) -> None:
    first, _ = await ensure_admin_key(database, tmp_path)
    async with database.unit_of_work() as session:
        found = await keys.find_by_plaintext(session, first)
        assert found is not None
        assert await keys.revoke(session, found.id)
    second, made = await ensure_admin_key(database, tmp_path)
    assert made
    assert second != first
    async with database.unit_of_work() as session:
        assert await keys.find_by_plaintext(session, first) is None
        assert await keys.find_by_plaintext(session, second) is not None


def test_the_session_secret_stays(tmp_path: Path) -> None:
    assert session_secret(tmp_path) == session_secret(tmp_path)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
