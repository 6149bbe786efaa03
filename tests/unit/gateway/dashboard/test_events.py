from __future__ import annotations

from gateway.dashboard.events import Differ, message
from gateway.dashboard.fragments import Fragments


def listing(*rows: tuple[str, str], status: str = "in progress", summary: str = "s") -> Fragments:
    return Fragments(
        whole={"summary": summary},
        listed=dict(rows),
        list_id="list",
        list_html="<ul>" + "".join(html for _, html in rows) + "</ul>",
        statuses={"a.jsonl": status},
    )


def targets(differ: Differ, fragments: Fragments) -> list[str]:
    return [part.split('"')[1] for part in differ.changes(fragments)]


def test_the_first_look_brings_everything_once() -> None:
    assert targets(Differ(), listing(("r1", "<li>1"))) == ["#list", "#summary"]


def test_nothing_new_sends_nothing() -> None:
    differ = Differ()
    targets(differ, listing(("r1", "<li>1")))
    assert targets(differ, listing(("r1", "<li>1"))) == []


def test_a_changed_row_is_sent_alone() -> None:
    differ = Differ()
    targets(differ, listing(("r1", "<li>1"), ("r2", "<li>2")))
    assert targets(differ, listing(("r1", "<li>1"), ("r2", "<li>3"))) == ["#r2"]


def test_a_new_row_brings_the_whole_list_but_not_its_rows_again() -> None:
    differ = Differ()
    targets(differ, listing(("r1", "<li>1")))
    assert targets(differ, listing(("r2", "<li>2"), ("r1", "<li>1"))) == ["#list"]


def test_a_change_of_status_is_announced_and_escaped() -> None:
    differ = Differ()
    targets(differ, listing())
    changed = Fragments(whole={}, statuses={"a.jsonl": "<completed>", "new.jsonl": "validating"})
    (said,) = differ.changes(changed)
    assert "a.jsonl: &lt;completed&gt;." in said
    assert "new.jsonl" not in said
    assert 'hx-target="#announcer"' in said


def test_every_line_of_a_message_is_data() -> None:
    assert message("a\nb") == b"data: a\ndata: b\n\n"
    assert message("x", event="session-over") == b"event: session-over\ndata: x\n\n"
