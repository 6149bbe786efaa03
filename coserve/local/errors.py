"""What keeps a stack from running here. Each message is a sentence for whoever started it.

LocalError
├── AlreadyRunningError    another supervisor holds the state directory (lock)
├── LeftoversError         processes of the last run do not end (lock)
├── PostgresError          Postgres cannot be prepared or does not answer (postgres)
├── ValkeyError            Valkey cannot be prepared (valkey)
├── MigrationFailed        the tables could not be brought up to date (database)
└── StartFailedError       a part did not become ready (part)
└── RefusedError       it said what is wrong with its settings or its machine (part)
"""

from __future__ import annotations


class LocalError(RuntimeError):
    """The stack cannot start, or cannot go on."""
