"""Everything about engines; importing this loads no engine."""
