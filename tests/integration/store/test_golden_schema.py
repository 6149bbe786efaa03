"""The tables, columns, keys and indexes that migrations have made."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from store.session import Database
from tests.fixtures.oracles import Oracle

QUERIES = {
    "columns": (
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod),"
        " CASE WHEN a.attnotnull THEN 'not null' ELSE '' END,"
        " coalesce('default ' || pg_get_expr(d.adbin, d.adrelid), '')"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND a.attnum > 0 AND NOT a.attisdropped"
    ),
    "constraints": (
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace"
    ),
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": (
        "SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger"
        " WHERE NOT tgisinternal"
    ),
    "functions": (
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        " AND prokind = 'f'"
    ),
    "sequences": "SELECT sequencename, data_type::text FROM pg_sequences",
}


async def schema_of(database: Database) -> str:
    """Everything but rows and the order of columns."""
    lines: list[str] = []
    async with database.engine.connect() as connection:
        for name, query in QUERIES.items():
            rows = (await connection.execute(text(query))).all()
            told = [" ".join(str(part) for part in row if part != "").strip() for row in rows]
            lines += [f"# {name}", *sorted(told, key=str), ""]
    return "\n".join(lines)


@pytest.mark.oracle
async def test_the_schema(database: Database, oracle: Oracle) -> None:
    oracle("schema.txt", await schema_of(database))
