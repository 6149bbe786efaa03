"""What counts as a right answer to a question."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from bench.questions import PLAIN, Question, judged, questions


def asked(kind: str, *right: str) -> Question:
    return Question(kind, {}, right)


@pytest.mark.parametrize(
    ("question", "answer", "right"),
    [
        (asked("mmlu", "B"), "B. Social class", True),
        (asked("mmlu", "B"), "The answer is B", True),
        (asked("mmlu", "B"), "Because", False),
        (asked("mmlu", "B"), "C, not B", False),
        (asked("gsm8k", "1080"), "3 * 360\n#### 1,080", True),
        (asked("gsm8k", "18"), "That makes 9 * 2 = 18.00 dollars", True),
        (asked("gsm8k", "18"), "#### 17 of 18", False),
        (asked("gsm8k", "18"), "no number", False),
        (asked("plain", "4", "four"), "It is Four.", True),
        (asked("plain", "4"), "It is 44.", False),
    ],
)
def test_answers(question: Question, answer: str, right: bool) -> None:
    assert judged(question, answer) is right


def test_our_own_alone_without_the_shared_sets(tmp_path: Path) -> None:
    assert [one.kind for one in questions(tmp_path)] == ["plain"] * len(PLAIN)


def test_the_shared_sets_are_asked_with_their_own_limits(tmp_path: Path) -> None:
    folder = tmp_path / "batch"
    folder.mkdir()
    body = {"model": "served-model", "messages": [], "max_tokens": 4, "temperature": 0}
    line = orjson.dumps({"custom_id": "a", "body": body})
    (folder / "mmlu_700.jsonl").write_bytes(line)
    (folder / "mmlu_700.answers.jsonl").write_bytes(b'{"custom_id": "a", "answer": "D"}')
    first = next(questions(tmp_path))
    assert first == Question("mmlu", {"messages": [], "max_tokens": 4}, ("D",))
