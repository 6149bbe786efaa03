"""The page of the scheduler: the last steps of each engine, drawn, and its requests by state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.dashboard.drawing import bars, line, nice_top
from gateway.dashboard.engines import EngineReading, read_engines
from gateway.dashboard.fragments import Fragments
from gateway.dashboard.resources import Resources
from gateway.dashboard.templating import render
from store.repositories import engine as engines

NUM_STEPS: Final = 200
CLASSES: Final = ("online", "flex", "offline")
NUM_LISTED: Final = 20


@dataclass(frozen=True)
class Step:
    """One step as the engine's report tells it.

    Attributes:
        age_s: Since its launch.
        tokens: Kept of each of `CLASSES`.
        stopped_at_layer: None where it ran to its end.
    """

    age_s: float
    tokens: tuple[int, int, int]
    predicted_ms: float
    measured_ms: float
    stopped_at_layer: int | None


@dataclass(frozen=True)
class StepsPicture:
    """The last steps as paths in a box of `NUM_STEPS` by 100, the newest at the right.

    Attributes:
        tokens: Class -> its bars, one class on top of the other.
        measured: Bars of measured times.
        predicted: A line of predicted times.
        stops: Marks of stopped steps over the whole height.
        max_tokens: What the upper edge of the tokens stands for.
        max_ms: What that of the times does.
        target: Height of the target's line, 0 to 100 from above; None if there is none in sight.
    """

    tokens: dict[str, str]
    measured: str
    predicted: str
    stops: str
    max_tokens: float
    max_ms: float
    target: float | None


def steps_of(report: Any) -> list[Step]:
    """The steps of a report; what has another shape is left out."""
    found = []
    for one in report if isinstance(report, Sequence) else ():
        if isinstance(one, Sequence) and len(one) == 7:
            age_s, online, flex, offline, predicted_ms, measured_ms, layer = one
            found.append(Step(age_s, (online, flex, offline), predicted_ms, measured_ms, layer))
    return found[-NUM_STEPS:]


def draw(steps: Sequence[Step], target_ms: float | None) -> StepsPicture:
    """The picture of some steps."""
    free = NUM_STEPS - len(steps)
    columns = [[0.0] * free + [float(step.tokens[at]) for step in steps] for at in range(3)]
    totals = [sum(column) for column in zip(*columns, strict=True)]
    max_tokens = nice_top(max(totals, default=0.0))
    # A step of one token stands beside one of hundreds: heights go by the square root.
    scales = [math.sqrt(max_tokens / total) if total else 0.0 for total in totals]
    columns = [
        [tokens * scale for tokens, scale in zip(column, scales, strict=True)] for column in columns
    ]
    bases, paths = [0.0] * NUM_STEPS, {}
    for name, column in zip(CLASSES, columns, strict=True):
        paths[name] = bars(column, bases, top=max_tokens)
        bases = [base + height for base, height in zip(bases, column, strict=True)]
    times = [0.0] * free + [step.measured_ms for step in steps]
    # A few long steps must not flatten all others: what is higher is cut off at the edge.
    usual = sorted(times)[int(0.98 * (len(times) - 1))]
    predicted = [step.predicted_ms for step in steps]
    max_ms = nice_top(max(usual, *predicted[-1:], min(target_ms or 0.0, 2 * usual), 1.0))
    nothing = [0.0] * NUM_STEPS
    return StepsPicture(
        tokens=paths,
        measured=bars([min(one, max_ms) for one in times], nothing, top=max_ms),
        predicted=line([*[None] * free, *predicted], top=max_ms),
        stops=bars(
            [0.0] * free + [float(step.stopped_at_layer is not None) for step in steps],
            nothing,
            top=1.0,
            gap=0.6,
        ),
        max_tokens=max_tokens,
        max_ms=max_ms,
        target=100 - 100 * target_ms / max_ms if target_ms and target_ms <= max_ms else None,
    )


@dataclass(frozen=True)
class EngineSteps:
    reading: EngineReading
    steps: Sequence[Step] = field(default_factory=list)
    name: str = ""

    @property
    def target_ms(self) -> float | None:
        """Its TBT target; none where it reports none."""
        found = self.reading.facts.reported("slo.tbt_s") if self.reading.facts else None
        return 1000 * float(found) if isinstance(found, int | float) else None

    @property
    def picture(self) -> StepsPicture:
        return draw(self.steps, self.target_ms)

    @property
    def states(self) -> list[tuple[str, int, str]]:
        """Its requests by state: name, how many, and what that means."""
        report = self.reading.runtime

        def number(key: str) -> int:
            found = report.get(key)
            return found if isinstance(found, int) else 0

        return [
            ("Decoding", number("decoding"), "a token each step, unless parked"),
            ("Prefilling", number("prefilling"), "prompts that are partly computed"),
            ("Restoring", number("restoring"), "pages come back from the host"),
            ("Parked", number("parked_requests"), "left out of the newest step, KV kept"),
            ("Retracted", number("retracted"), "gave slot and pages up, wait to come back"),
            ("Queued", max(0, number("waiting") - number("retracted")), "not begun yet"),
        ]

    @property
    def newest(self) -> Sequence[Step]:
        """The newest steps, the last first, for those who read figures."""
        return self.steps[: -NUM_LISTED - 1 : -1]

    @property
    def said(self) -> str:
        """The picture in words, for those who do not see it."""
        if not self.steps:
            return "no step yet"
        tokens = [sum(step.tokens[at] for step in self.steps) for at in range(3)]
        num_stopped = sum(step.stopped_at_layer is not None for step in self.steps)
        words = ", ".join(f"{num:,} {name}" for num, name in zip(tokens, CLASSES, strict=True))
        return f"{len(self.steps)} steps, tokens: {words}; {num_stopped} stopped"


@dataclass(frozen=True)
class SchedulerPage:
    """The newest steps of every engine, and its requests by state."""

    @property
    def fresh_s(self) -> float:
        """See `LivingPage`: each reading costs every engine two requests."""
        return 1.9

    async def read(self, resources: Resources) -> Fragments:
        readings = await read_engines(resources.engines)
        async with resources.database.unit_of_work() as work:
            names = await engines.names(work)
        items = {
            f"steps-{number}": render(
                "fragments/steps.html",
                number=number,
                e=EngineSteps(
                    reading,
                    steps_of(reading.runtime.get("recent_steps")),
                    names.get(reading.url, ""),
                ),
                num_steps=NUM_STEPS,
            )
            for number, reading in enumerate(readings)
        }
        return Fragments(
            whole={},
            listed=items,
            list_id="engines-list",
            list_html=render("fragments/engines_list.html", items=items),
        )
