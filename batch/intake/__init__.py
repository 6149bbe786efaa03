"""From an upload to rows: files arrive, lines are checked, a batch is created and validated."""
