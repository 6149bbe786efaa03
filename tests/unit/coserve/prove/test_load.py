"""The same chats for every system, whose prefixes nobody can find again."""

from __future__ import annotations

import json

from coserve.prove.load import NUM_ROWS, Chat, chats, lines
from coserve.prove.run import Schedule


def test_chats_come_at_their_rate_and_are_the_same_each_time() -> None:
    found = chats(5.0, 200.0, seed=1)
    assert found == chats(5.0, 200.0, seed=1)
    assert 850 < len(found) < 1150
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)


def test_turns_are_all_chats_once() -> None:
    schedule = Schedule.of(3.0, 290.0)
    assert schedule.num_phases == 5
    phases = [schedule.phase(number) for number in range(schedule.num_phases)]
    assert [chat for phase in phases for chat in phase] == schedule.todo


def test_a_chat_begins_with_its_system_and_goes_on_alike() -> None:
    chat = Chat(7, 0.0, 20, 16)
    alone, beside = (chat.body("m", name)["messages"][0]["content"] for name in ("a", "b"))
    assert alone != beside
    assert alone.removeprefix("a") == beside.removeprefix("b")


def test_each_line_of_the_batch_is_another_row() -> None:
    parsed = [json.loads(line) for line in lines("m")]
    assert len({one["custom_id"] for one in parsed}) == NUM_ROWS
    assert len({one["body"]["messages"][0]["content"] for one in parsed}) == NUM_ROWS
