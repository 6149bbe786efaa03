"""A database that a test gives back is like a new one, or is never seen again."""

from __future__ import annotations

import psycopg
import pytest

from coserve.local.postgres import PostgresFiles
from tests.fixtures.databases import TEMPLATE, Databases


@pytest.fixture
def own(postgres_server: PostgresFiles) -> Databases:
    """A set of its own, so that what is given out next is known."""
    return Databases(postgres_server)


def contents(files: PostgresFiles, name: str) -> dict[str, list[tuple[object, ...]]]:
    with files.connect(name) as connection:
        tables = connection.execute(
            "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        ).fetchall()
        return {
            str(table): connection.execute(f'SELECT * FROM "{table}"').fetchall()
            for (table,) in tables
        }


def drop(files: PostgresFiles, name: str) -> None:
    with files.connect() as connection:
        connection.execute(f"DROP DATABASE {name}")


def test_rows_numbers_and_connections_of_the_last_test_are_gone(own: Databases) -> None:
    name = own.take()
    left = own.files.connect(name)
    left.execute("UPDATE projects SET name = 'Changed'")
    left.execute("INSERT INTO organizations (id, name) VALUES ('org_left', 'Left')")
    left.execute("DELETE FROM full_stores")
    left.execute("SELECT nextval(seqrelid::regclass) FROM pg_sequence")
    own.give_back(name)
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    assert own.take() == name
    assert contents(own.files, name) == contents(own.files, TEMPLATE)
    with own.files.connect(name) as connection:
        given = connection.execute("SELECT last_value FROM pg_sequences").fetchall()
    assert set(given) == {(None,)}
    drop(own.files, name)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE projects ADD COLUMN more text",
        "CREATE TABLE more (id int)",
        "DROP INDEX {index}",
        "ALTER TABLE batches DISABLE TRIGGER ALL",
        "ALTER DATABASE {name} CONNECTION LIMIT 1",
        "ALTER DATABASE {name} SET statement_timeout = '1s'",
    ],
)
def test_another_shape_is_not_used_again(own: Databases, change: str) -> None:
    name = own.take()
    with own.files.connect(name) as connection:
        found = connection.execute(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisunique"
            " AND indrelid = 'batches'::regclass LIMIT 1"
        ).fetchone()
        assert found is not None
        connection.execute(change.format(name=name, index=found[0]).encode())
    own.give_back(name)
    with own.files.connect() as connection:
        assert not connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", (name,)
        ).fetchall()
