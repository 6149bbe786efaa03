"""Overview, scheduler and proof of isolation, as the server sends them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from sqlalchemy import select, text

from gateway.limits.buckets import Charge, cost_us
from store.models import Batch, Project
from store.repositories import dispatcher as dispatchers
from store.repositories import engine as engines
from store.repositories import history, usage
from store.repositories.history import Figures
from store.repositories.usage import UsageCount, UsageKey
from store.session import Database
from tests.fixtures.dashboard import Site, token_in
from tests.fixtures.operator_site import operator_site


@dataclass(frozen=True)
class Verdict:
    """What the first page judges; the sentences are those of tests/unit/gateway/verdict.

    Attributes:
        tones: Of each answer, by its name.
        issues: Their kinds, worst first.
        runbook: The pages that their steps are from.
    """

    tones: dict[str, str]
    issues: list[str]
    runbook: set[str]


async def verdict(site: Site) -> Verdict:
    async with site.admin() as client:
        html = (await client.get("/admin/")).text
    return Verdict(
        {name: tone for tone, name in re.findall(r'<li class="(\w+)" id="verdict-(\w+)">', html)},
        re.findall(r'<li class="\w+" id="issue-(\w+)-\d+">', html),
        set(re.findall(r"<code>docs/operations/runbook/(\w+)\.md</code>", html)),
    )


async def page(site: Site, path: str) -> str:
    async with site.admin() as client:
        reply = await client.get(path)
        assert reply.status_code == 200, reply.text
        return " ".join(re.sub(r"<[^>]+>", " ", reply.text).split())


async def test_the_first_page_says_that_chat_is_in_time(database: Database) -> None:
    async with operator_site(database) as site:
        judged = await verdict(site)
        assert judged.issues == []
        assert {judged.tones[name] for name in ("chat", "harvest", "parts")} == {"good"}
        for window, label in (
            ("", "15 minutes"),
            ("?window=3h", "3 hours"),
            ("?window=24h", "24 hours"),
            ("?window=14d", "14 days"),
        ):
            said = await page(site, f"/admin/{window}")
            assert f"in {label}" in said
            assert re.search(r"First tokens in time 9\d(\.\d)? % last minute", said), said
            assert "target 500 ms" in said
            assert re.search(
                r"Batch tokens, beside chat \d+(\.\d)?( [kM])? in"
                rf" {label} · [\d.]+ engine-(hours|minutes)",
                said,
            ), said
            found = re.findall(r"As sent (\d+) ms (\d+) ms (\d+) ms", said)
            assert len(found) == 2, "TTFT and TBT"
            assert all(sorted(map(int, one)) == [*map(int, one)] for one in found)
            assert "Live batches" in said
        async with site.admin() as client:
            assert (await client.get("/admin", follow_redirects=True)).status_code == 200


async def test_the_first_page_names_what_is_wrong(database: Database) -> None:
    async with operator_site(database, troubled=True) as site:
        judged = await verdict(site)
        said = await page(site, "/admin/")
    assert judged.issues[0] == "engine_lost"
    assert any(code.startswith("late_") for code in judged.issues)
    assert judged.tones["chat"] == "bad"
    assert "The connection was refused." in said, "the cause that the pool knows"


@pytest.mark.parametrize(("minutes", "ago_s"), [(5, 150), (15, 480), (60, 2400)])
async def test_late_chat_of_a_quiet_hour_is_told(
    database: Database, minutes: int, ago_s: int
) -> None:
    """The only chat was a while ago and late: no page says that targets are kept."""
    async with operator_site(database) as site:
        async with database.unit_of_work() as work:
            await work.execute(text("DELETE FROM history_points"))
            # Twice, so that no step's edge decides: 20 are enough.
            for step_s in (10, 60):
                await work.execute(
                    text(
                        "INSERT INTO history_points (step_s, began_at, series, subject, figures)"
                        " VALUES (:step_s, to_timestamp(floor(extract(epoch FROM"
                        " statement_timestamp() - make_interval(secs => :ago_s)) / :step_s)"
                        " * :step_s), 'tbt:online', 'm', '{9,21,3,30}')"
                    ),
                    {"step_s": step_s, "ago_s": ago_s},
                )
        judged = await verdict(site)
        said = await page(site, "/admin/")
    label = "last hour" if minutes == 60 else f"last {minutes} min"
    assert f"30 % ({label})" in said
    assert judged.tones["chat"] == "bad"
    assert judged.issues == ["late"]


async def test_the_first_tile_has_rate_and_errors(database: Database) -> None:
    async with operator_site(database) as site:
        async with database.unit_of_work() as work:
            new = [Figures("answers", "200", [50.0]), Figures("answers", "503", [9.0])]
            await history.add(work, [*new, Figures("answers", "429", [1.0])])
        judged = await verdict(site)
        said = await page(site, "/admin/")
    assert re.search(r"Requests per minute 60 .*9 × 503.*1 × 429", said), said
    assert any(code.startswith("requests_") for code in judged.issues)


async def test_a_drained_engine_is_told_on_the_first_page(database: Database) -> None:
    async with operator_site(database) as site:
        site.app.state.engines.members[0].draining = True
        judged = await verdict(site)
        said = await page(site, "/admin/")
    assert judged.issues == ["all_drained"]
    assert judged.tones["chat"] == judged.tones["parts"] == "bad"
    assert judged.runbook == {"CoserveEngineLost"}
    assert "coserve engine resume URL" in said, "what to do stands there too"


async def test_an_issue_has_its_act_as_a_button(database: Database) -> None:
    async with operator_site(database) as site:
        member = site.app.state.engines.members[0]
        async with database.unit_of_work() as work:
            await engines.add(work, member.url)
            await engines.drain(work, member.url)
        member.draining = True
        async with site.admin() as client:
            shown = (await client.get("/admin/")).text
            button = re.search(
                r'form="issue-act" formaction="([^"]+)" name="url" value="([^"]+)"', shown
            )
            assert button is not None
            assert button[2] == member.url
            fields = {"csrf_token": token_in(shown), "url": button[2]}
            done = await client.post(button[1], data=fields)
            assert done.headers["location"] == "/admin/engines"
        async with database.unit_of_work() as work:
            assert [one.draining for one in await engines.states(work)] == [False]


@pytest.mark.parametrize("state", ["down", "hung"])
async def test_the_first_page_says_that_the_broker_is_away(database: Database, state: str) -> None:
    async with operator_site(database) as site:
        assert (await verdict(site)).issues == []
        site.app.state.broker.state = state
        assert (await verdict(site)).issues == ["broker_away"]
        site.app.state.broker.state = "up"
        assert (await verdict(site)).issues == []


async def test_the_first_page_says_that_nobody_sends_rows(database: Database) -> None:
    async with operator_site(database) as site:
        async with database.unit_of_work() as work:
            await work.execute(
                text(
                    "UPDATE batches SET"
                    " in_progress_at = statement_timestamp() - interval '5 minutes'"
                )
            )
        assert (await verdict(site)).issues == ["dispatcher_away"]
        async with database.unit_of_work() as work:
            assert await dispatchers.acquire(work, "d", "fake://engine")
        assert (await verdict(site)).issues == []


async def test_without_any_history_the_pages_say_so(site: Site) -> None:
    assert "There is no engine" in await page(site, "/admin/")
    assert "No engine is known" in await page(site, "/admin/scheduler")
    assert "Not enough was seen yet" in await page(site, "/admin/isolation")


async def test_scheduler_and_isolation(database: Database) -> None:
    async with operator_site(database) as site:
        assert "Tokens of each step" in await page(site, "/admin/scheduler")
        said = await page(site, "/admin/isolation?window=14d")
        assert re.search(r"P90 beside batch work: \d+ ms, \d+ % more than without", said), said
        assert "once a day" not in said


async def test_their_streams_are_read_like_the_pages(database: Database) -> None:
    async with operator_site(database) as site, site.admin() as client:
        for view, element in (
            ("overview&window=24h", "overview-figures"),
            ("scheduler", "steps-0"),
            ("isolation&window=14d", "isolation-tbt"),
        ):
            async with client.stream("GET", f"/admin/events?view={view}") as reply:
                assert reply.status_code == 200
                text = ""
                async for part in reply.aiter_text():
                    text += part
                    if "</hx-partial>" in text:
                        break
                assert f'id="{element}"' in text


async def test_an_engine_is_drained_and_used_again(database: Database) -> None:
    async with operator_site(database) as site, site.admin() as client:
        (member,) = site.app.state.engines.members
        async with database.unit_of_work() as work:
            await engines.add(work, member.url)
        asking = (await client.get("/admin/engines")).text
        assert 'data-dialog="drain-dialog-0"' in asking
        assert f"This is the last engine of {member.facts.model}: chat with it will be" in asking
        fields = {"csrf_token": token_in(asking), "url": member.url}
        assert (await client.post("/admin/engines/drain", data=fields)).status_code == 303
        page = (await client.get("/admin/engines")).text
        assert "Nothing new is sent here" in page
        assert "Use it again" in page
        assert (await client.post("/admin/engines/resume", data=fields)).status_code == 303
        assert "Nothing new is sent here" not in (await client.get("/admin/engines")).text
        unknown = await client.post(
            "/admin/engines/drain", data={**fields, "url": "http://nowhere:1"}
        )
        forged = await client.post("/admin/engines/drain", data={"url": member.url})
        log = (await client.get("/admin/audit")).text
    assert (unknown.status_code, forged.status_code) == (404, 403)
    assert "engine.drained" in log
    assert "engine.resumed" in log


async def test_rows_at_the_engine_are_told_apart(database: Database) -> None:
    async with operator_site(database) as site, site.admin() as client:
        said = (await client.get("/admin/batches")).text
    told = "18 succeeded, 2 failed, 14 decoding, 6 parked, 6 queued there, 14 waiting"
    assert told in said, "two rows came since the engine said what it has"


async def test_an_engine_is_called_by_its_name(database: Database) -> None:
    async with operator_site(database, troubled=True) as site, site.admin() as client:
        (member,) = site.app.state.engines.members
        async with database.unit_of_work() as work:
            await engines.add(work, member.url)
        found = (await client.get("/admin/engines")).text
        assert f"<h2>{member.url.partition('://')[2]} " in found, "by its address at first"
        fields = {"csrf_token": token_in(found), "url": member.url}
        for name, status in ((" rack 2 ", 303), ("x" * 65, 400), ("a\nb", 400)):
            reply = await client.post("/admin/engines/name", data={**fields, "name": name})
            assert reply.status_code == status, name
        assert "<h2>rack 2 " in (await client.get("/admin/engines")).text
        assert "rack 2" in (await client.get("/admin/scheduler")).text
        overview = (await client.get("/admin/")).text
        log = (await client.get("/admin/audit?action=engine.named")).text
        unknown = {**fields, "url": "http://nowhere:1", "name": "a"}
        assert (await client.post("/admin/engines/name", data=unknown)).status_code == 404
    assert "The engine rack 2 is lost" in overview
    assert "name: rack 2" in log


async def test_a_projects_use_stands_beside_its_limits(database: Database) -> None:
    async with operator_site(database) as site, site.admin() as client:
        async with database.unit_of_work() as work:
            project = await work.get_one(Project, "proj_default")
            project.live_batches = 4
            project.stored_bytes = 10**9
        page = (await client.get("/admin/projects/proj_default")).text
        every = (await client.get("/admin/projects")).text
    used = page[page.index('id="use"') : page.index('id="keys-title"')]
    assert "3 <span" in used, "the site has three live batches"
    assert "of 4" in used
    assert 'value="75.0"' in used
    assert "Prompt tokens waiting" in used
    assert 'aria-label="Live batches of Default, of its limit"' in every, "its nearest limit"
    assert 'aria-label="Stored bytes of Default' not in every


async def test_usage_has_shares_and_limits_beside_use(database: Database) -> None:
    async with operator_site(database) as site, site.admin() as client:
        async with database.unit_of_work() as work:
            project = await work.get_one(Project, "proj_default")
            project.live_batches, project.requests_per_minute = 3, 60
            project.tokens_per_minute = 0
            for model, num in (("large", 750), ("small", 250)):
                used = UsageKey("proj_default", site.key_id, model, "online")
                await usage.add(work, {used: UsageCount(1, num, 0, 0)})
        limit = Charge("coserve:rate:proj_default:requests", cost_us(60, 60))
        await site.app.state.limiter.take([limit])
        said = (await client.get("/admin/usage")).text
    assert 'id="harvested"' not in said, "there was chat alone"
    shares = said[said.index('id="shares"') : said.index('id="usage"')]
    for title in ("By project", "By key", "By model", "By class"):
        assert f"<h2>{title}</h2>" in shares
    assert '75.0 % <span class="sub-inline">750</span>' in shares
    assert 'value="25.0" class="run" aria-label="small, of all tokens"' in shares
    limits = said[said.index('id="limits"') :]
    assert '3 <span class="sub-inline">of 3</span>' in limits
    assert 'class="bad" aria-label="Live batches of Default, of its limit"' in limits
    found = re.search(r'Requests a minute</dt><dd>(\d+) <span class="sub-inline">of 60', limits)
    assert found
    assert 0 < int(found[1]) <= 60, "what was taken flows back in a minute"
    assert 'Tokens a minute</dt><dd>0 <span class="sub-inline">of 0</span>' in limits
    assert "Stored bytes" not in limits, "it has no limit"


async def test_what_was_harvested_is_an_amount_for_a_batch_a_project_and_all(
    database: Database,
) -> None:
    async with operator_site(database) as site:
        priced = {"batch_token_price": "0.30 USD"}
        site.app.state.settings = site.app.state.settings.model_copy(update=priced)
        async with database.unit_of_work() as work:
            for word, num in (("offline", 7_000_000), ("flex", 1_000_000), ("online", 5_000)):
                used = UsageKey("proj_default", site.key_id, "m", word)
                await usage.add(work, {used: UsageCount(1, num, 100_000, 200_000)})
            batch = (await work.execute(select(Batch).limit(1))).scalar_one()
            batch.prompt_tokens, batch.cached_tokens = 3_000_000, 500_000
            batch.completion_tokens = 500_000
        said = await page(site, f"/admin/batches/{batch.id}")
        amount = r"3\.0 M batch tokens about [\d,.]+ engine-hours · worth 0\.90 USD"
        assert re.search(amount, said), said
        said = await page(site, "/admin/usage")
        amount = r"8\.2 M batch tokens about [\d,.]+ engine-hours · worth 2\.46 USD"
        assert re.search(amount, said), said
        assert re.search(r"Default 8,200,000 [\d,.]+ engine-hours 2\.46 USD", said)
        said = await page(site, "/admin/projects/proj_default")
        assert re.search(r"Batch tokens, last 30 days 8\.2 M about", said)
        said = await page(site, "/admin/?window=24h")
        assert re.search(r"in the last 24 h, beside chat: .*, worth \d+\.\d\d USD\.", said)


async def test_an_engine_is_profiled_anew(database: Database) -> None:
    async with operator_site(database) as site, site.admin() as client:
        (member,) = site.app.state.engines.members
        form = {"csrf_token": token_in((await client.get("/admin/engines")).text)}
        form["url"] = member.url
        reply = await client.post("/admin/engines/profile", data=form)
        assert reply.status_code == 303
        facts = await member.client.facts()
        assert facts.reported("profile.state") == "measuring"
        assert "Profiling" in await page(site, "/admin/engines")
        form["url"] = "http://nobody:1"
        assert (await client.post("/admin/engines/profile", data=form)).status_code == 404


async def test_the_level_of_an_engine_is_set_on_its_page(database: Database) -> None:
    async with operator_site(database) as site, site.admin() as client:
        (member,) = site.app.state.engines.members
        async with database.unit_of_work() as work:
            await engines.add(work, member.url)
        page = (await client.get("/admin/engines")).text
        assert "level-dialog" not in page, "an engine that reports no level takes none"
        member.client.engine.report["level"] = "balanced"
        page = (await client.get("/admin/engines")).text
        assert 'id="level-confirm"' in page
        fields = {"csrf_token": token_in(page), "url": member.url, "level": "max"}
        assert (await client.post("/admin/engines/level", data=fields)).status_code == 303
        async with database.unit_of_work() as work:
            (one,) = [one for one in await engines.states(work) if one.url == member.url]
        assert one.level == "max"
        wrong = await client.post("/admin/engines/level", data={**fields, "level": "most"})
        unknown = await client.post(
            "/admin/engines/level", data={**fields, "url": "http://nowhere:1"}
        )
        log = (await client.get("/admin/audit?action=engine.level_set")).text
    assert (wrong.status_code, unknown.status_code) == (400, 404)
    assert "level: max" in log
