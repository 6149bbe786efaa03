"""Alembic migrations: `alembic upgrade head` with DATABASE_URL set."""
