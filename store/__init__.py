"""The database: one metadata, all tables, all queries. Knows nothing of HTTP, engines or Celery."""
