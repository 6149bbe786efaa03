"""What shares an engine or a stack runs in one process."""

from __future__ import annotations

from tests.fixtures.order import TESTS, group_of


def test_files_of_one_stack_or_engine_are_one_group() -> None:
    e2e, engine = TESTS / "e2e", TESTS / "engine"
    for name in ("batch_command", "chat_and_batch", "readme", "tutorial"):
        assert group_of(e2e / f"test_{name}.py") == "stack"
    for name in ("engine_server", "gateway"):
        assert group_of(engine / f"test_{name}.py") == "engine"


def test_a_file_with_an_engine_of_its_own_is_a_group_and_unit_tests_are_none() -> None:
    name = "test_coserving_debt.py"
    assert group_of(TESTS / "engine" / name) == name
    assert group_of(TESTS / "e2e/test_supervisor_engine.py") == "test_supervisor_engine.py"
    assert group_of(TESTS / "architecture/test_order.py") is None
