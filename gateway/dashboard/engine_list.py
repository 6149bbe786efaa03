"""The page of engines: each as it is now, and what all did in the last day."""

from __future__ import annotations

from dataclasses import dataclass

from engine_adapter.scheduling.policies.settings import Level
from gateway.dashboard.engines import (
    day_chart,
    memory_chart,
    read_engines,
    tokens_chart,
    what_draining_means,
)
from gateway.dashboard.fragments import Fragments
from gateway.dashboard.resources import Resources
from gateway.dashboard.templating import render
from gateway.history.reading import CHART_SPANS
from gateway.history.reading import read as read_history
from store.repositories import engine as engines


@dataclass(frozen=True)
class Drain:
    """The question before an engine is drained.

    Attributes:
        number: Of the engine on the page.
        means: Who is served no more, and who takes its requests.
    """

    number: int
    url: str
    means: str


@dataclass(frozen=True)
class EnginesPage:
    """All engines that the gateway knows, with their work of the last day."""

    @property
    def fresh_s(self) -> float:
        """See `LivingPage`: slower, as each reading costs every engine two requests."""
        return 1.9

    async def read(self, resources: Resources) -> Fragments:
        readings = await read_engines(resources.engines)
        async with resources.database.unit_of_work() as work:
            known = {one.url: one for one in await engines.states(work)}
            day = await read_history(work, CHART_SPANS["24h"], ["engine"])
        called = {url: engines.called(url, one.name) for url, one in known.items()}
        at_s = resources.clock.now().timestamp()
        bounds = CHART_SPANS["24h"].bounds(at_s)
        for reading in readings:
            resources.history.add(reading, at_s)
        items = {
            f"engine-{number}": render(
                "fragments/engine.html",
                number=number,
                e=reading,
                chart=resources.history.chart(reading.url),
                known=known.get(reading.url),
                called=called.get(reading.url) or engines.called(reading.url, None),
                day=day_chart(day, reading.url, bounds),
            )
            for number, reading in enumerate(readings)
        }
        charts = render(
            "fragments/engines_work.html",
            tokens=tokens_chart(day, bounds),
            memory=memory_chart(day, bounds),
        )
        return Fragments(
            whole={"engines-work": charts},
            listed=items,
            list_id="engines-list",
            list_html=render("fragments/engines_list.html", items=items),
            facts={
                "names": called,
                "levels": list(Level),
                "levelled": {
                    r.url: called[r.url]
                    for r in readings
                    if r.url in known and r.facts and r.facts.reported("level")
                },
                "drains": [
                    Drain(number, r.url, what_draining_means(resources.engine_pool.members, r.url))
                    for number, r in enumerate(readings)
                    if r.url in known
                ],
            },
            statuses={called.get(r.url, r.url): r.state[0] for r in readings},
        )
