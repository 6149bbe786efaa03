"""The rows of a batch: found, read one at a time, and noted."""

from __future__ import annotations

import re

from sqlalchemy import text

from batch.intake.validate import validate
from store.models import DEFAULT_ORGANIZATION_ID
from store.repositories import audit
from store.repositories import key as keys
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import add_batch, line, read_batch
from tests.fixtures.dashboard import Site, log_in, token_in


async def words(site: Site, path: str, *, key: str = "") -> str:
    async with site.client() as client:
        await log_in(client, key or site.key)
        reply = await client.get(path)
        assert reply.status_code == 200, reply.text
        return " ".join(re.sub(r"<[^>]+>", " ", reply.text).split())


async def ran(site: Site) -> str:
    lines = [line(f"question-{n}", f"fake:text=answer_{n}") for n in range(1, 61)]
    lines[9] = line("wrong-10", "fake:status=400")
    lines[39] = line("wrong-40", "fake:status=400")
    batch_id = await add_batch(site.bench.database, site.bench.file_store, lines)
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    return f"/admin/batches/{batch_id}/rows"


async def test_rows_are_found_by_custom_id_state_and_page(site: Site) -> None:
    path = await ran(site)
    first = await words(site, path)
    assert "question-50" in first
    assert "question-51" not in first
    assert "question-51" in await words(site, f"{path}?after=50")
    found = await words(site, f"{path}?search=ion-5")
    assert "question-5 " in found
    assert "question-59" in found
    assert "question-49" not in found
    failed = await words(site, f"{path}?group=failed")
    assert "wrong-10" in failed
    assert "wrong-40" in failed
    assert "question-1 " not in failed
    assert "No rows have “<b>” in their custom_id".replace("<b>", "&lt;b&gt;") in await words(
        site, f"{path}?search=%3Cb%3E"
    )


async def test_a_row_is_shown_with_prompt_answer_and_usage_and_is_noted(site: Site) -> None:
    path = await ran(site)
    said = await words(site, f"{path}?line=7")
    assert "User fake:text=answer_7 Response stop answer 7" in said
    assert re.search(r"Latency \d", said)
    assert re.search(r"Tokens \d+ read, \d+ written", said)
    async with site.bench.database.unit_of_work() as session:
        ((entry, _), *_) = await audit.page(session, DEFAULT_ORGANIZATION_ID, limit=1)
    assert entry.action == "batch.row_read"
    assert (entry.detail or {})["data"] == {"line": 7, "listed": "1 to 50"}


async def test_the_list_says_how_texts_begin_how_they_ended_and_how_many_there_are(
    site: Site,
) -> None:
    path = await ran(site)
    said = await words(site, path)
    assert "Rows of input.jsonl" in said
    assert "All 60 Failed 2 Succeeded 58 At the engine 0 Waiting 0 Stopped 0" in said
    found = re.search(r" 7 question-7 (.*?) 8 question-8 ", said)
    assert found
    assert re.fullmatch(
        r"fake:text=answer_7 answer 7 succeeded stop \d+ \d+ [\d.]+ m?s", found[1]
    ), found[1]


async def test_a_cut_answer_stands_out_and_a_long_one_is_not_read_for_the_list(site: Site) -> None:
    long = "x " * 40_000
    lines = [line("cut", "fake:finish=length"), line("long", long)]
    batch_id = await add_batch(site.bench.database, site.bench.file_store, lines)
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    async with site.admin() as client:
        html = (await client.get(f"/admin/batches/{batch_id}/rows")).text
        assert 'class="sub warn-text">length<' in html
        assert "x x x" not in html
        assert "x x x" in (await client.get(f"/admin/batches/{batch_id}/rows?line=2")).text


async def test_one_row_is_run_again_as_a_batch_of_its_own(site: Site) -> None:
    path = await ran(site)
    async with site.admin() as client:
        html = (await client.get(f"{path}?line=10")).text
        token = token_in(html)
        assert f'action="{path}/10/again"' in html
        assert (await client.post(f"{path}/10/again")).status_code == 403
        reply = await client.post(f"{path}/10/again", data={"csrf_token": token})
        assert reply.status_code == 303
        new = reply.headers["location"].rsplit("/", 1)[1]
        assert (
            await client.post(f"{path}/99/again", data={"csrf_token": token})
        ).status_code == 404
    made = await read_batch(site.bench.database, new)
    assert (made.status, made.project_id, made.webhook_endpoints) == (
        "validating", "proj_default", []
    )  # fmt: skip
    assert await validate(site.bench.database, site.bench.file_store, new)
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    said = await words(site, f"/admin/batches/{new}/rows?line=1")
    assert "wrong-10" in said
    assert "Rows of input line 10.jsonl" in said
    async with site.bench.database.unit_of_work() as session:
        entries = await audit.page(session, DEFAULT_ORGANIZATION_ID, limit=5)
    retried = [one for one, _ in entries if one.action == "batch.row_retried"]
    assert [(one.detail or {})["data"] for one in retried] == [{"line": 10, "new_batch_id": new}]


async def test_a_row_that_has_not_ended_or_lost_its_file_is_not_run_again(site: Site) -> None:
    batch_id = await add_batch(site.bench.database, site.bench.file_store, [line("a")])
    path = f"/admin/batches/{batch_id}/rows"
    async with site.admin() as client:
        html = (await client.get(f"{path}?line=1")).text
        assert "/again" not in html
        form = {"csrf_token": token_in(html)}
        assert (await client.post(f"{path}/1/again", data=form)).status_code == 409
        await site.bench.dispatch(FakeEngineClient(FakeEngine()))
        batch = await read_batch(site.bench.database, batch_id)
        await site.bench.file_store.delete(batch.input_file_id)
        assert "/again" not in (await client.get(f"{path}?line=1")).text
        assert (await client.post(f"{path}/1/again", data=form)).status_code == 409


async def test_every_error_is_counted_by_code_and_leads_to_its_rows(site: Site) -> None:
    lines = [line(f"good-{n}") for n in range(5)]
    lines += [line(f"long-{n}", "fake:status=400") for n in range(70)]
    lines += [line(f"other-{n}", "fake:status=400") for n in range(3)]
    batch_id = await add_batch(site.bench.database, site.bench.file_store, lines)
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    async with site.bench.database.unit_of_work() as session:
        await session.execute(
            text(
                "UPDATE row_results r SET line = convert_to(replace(convert_from(line, 'UTF8'),"
                " 'invalid_value', 'rare'), 'UTF8')"
                " FROM batch_rows b WHERE b.id = r.row_id AND b.custom_id LIKE 'other-%'"
            )
        )
    path = f"/admin/batches/{batch_id}/rows"
    said = await words(site, f"{path}?group=failed")
    codes = re.findall(r"(\d+) (\S+) The engine cannot process", said[: said.index("Line Request")])
    assert sorted(int(num) for num, _ in codes) == [3, 70], said
    found = await words(site, f"{path}?error=rare")
    assert "other-0" in found
    assert "other-2" in found
    assert "long-" not in found
    assert "No rows failed with rar" in await words(site, f"{path}?error=rar")
    seen: set[str] = set()
    async with site.admin() as client:
        following: str | None = f"{path}?group=failed"
        while following:
            html = (await client.get(following)).text
            seen |= set(re.findall(r">((?:long|other)-\d+)<", html))
            more = re.search(r'href="([^"]+)" rel="next"', html)
            following = more and more[1].replace("&amp;", "&")
    assert len(seen) == 73, "every one of them"
    page = await words(site, f"/admin/batches/{batch_id}")
    assert "Every error, by code" in page


async def test_from_one_failed_row_to_the_next(site: Site) -> None:
    path = await ran(site)
    async with site.admin() as client:
        line_no, seen = 0, []
        for _ in range(2):
            html = (await client.get(f"{path}?line={line_no}" if line_no else path)).text
            found = re.search(r'id="failed-row" href="[^"]*line=(\d+)"', html)
            assert found
            line_no = int(found[1])
            seen.append(line_no)
        last = (await client.get(f"{path}?line={line_no}")).text
    assert seen == [10, 40]
    assert 'id="failed-row"' not in last
    assert "400" in last
    assert "The engine cannot process" in last


async def test_texts_are_for_operators_and_other_organisations_see_nothing(site: Site) -> None:
    path = await ran(site)
    async with site.bench.database.unit_of_work() as session:
        _, viewer = await keys.create(session, "proj_default", "viewer", role="viewer")
    said = await words(site, f"{path}?line=7", key=viewer)
    assert "question-7" in said
    assert "answer 7" not in said
    assert "answer_7" not in said
    async with site.admin() as client:
        assert (await client.get("/admin/batches/batch_none/rows")).status_code == 404
        assert (await client.get(f"{path}?line=x")).status_code == 400
