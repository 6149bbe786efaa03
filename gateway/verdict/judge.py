"""Facts in, verdict out: is chat in time, what was harvested, do batches end in time, what is
wrong and why. Pure.

Chat is judged over the shortest of 1, 5, 15 and 60 minutes that holds `MIN_JUDGED` samples. A share
of fewer is chance: then the verdict says how many there were and claims nothing.

Why chat is late, the first that applies:

in engines most of it is in time          the time is lost before or after them
an engine still measures its profile      no step is planned for a target yet
steps take longer than profiled, all day  the profile is old, or another machine's
steps take longer than profiled, now      another program uses the machine
an engine is drained or lost              the others have its chat too
late beside batch work alone              batch work delays it
late without batch work too               there is more chat than the engines can serve
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.dashboard import wording
from gateway.verdict.facts import FULL, Engine, Facts, Kept, LiveBatch, LookBack, Receiver

GOOD_SHARE, FAIR_SHARE = 0.95, 0.90
"""In time: green from the first on, amber from the second, else red."""
MIN_JUDGED: Final = 20
FAILED_SHARE: Final = 0.05
"""Of responses with 5xx, as in the alert CoserveErrors."""
REFUSED_SHARE: Final = 0.5
"""Of responses with 4xx: clients err all the time, most of them at once seldom."""
SLOW_RATIO: Final = 1.25
"""Step times over profiled ones from which on the machine is slower than its profile."""
NEARLY_FULL_SHARE, FULL_SHARE = 0.90, 0.97
"""As in the alerts CoserveDiskNearlyFull and CoserveDiskFull."""
SWEEP_LATE_S: Final = 30.0
DISPATCHER_LATE_S: Final = 30.0
UNSENT_S: Final = 60.0
"""A batch gets a dispatcher within seconds."""
STAGE_LATE_S: Final = 120.0
MAX_NAMED: Final = 3
CHAT_STATES: Final = (
    "in_time", "late", "failing", "refused", "none", "too_few", "no_target", "unknown",
)  # fmt: skip
"""What the answer on chat may be."""
LATENCIES: Final = {"ttft": "first tokens", "tbt": "gaps between tokens"}


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong.

    Attributes:
        code: Its kind, which names its remedy.
        tone: `bad` if requests or batches suffer, `warn` if they will.
        what: What is wrong.
        cause: Why, as far as it is known.
        unnamed: `what` for somebody without a key: no name of a tenant, no address. Empty where
            `what` and `cause` hold none.
        batch_id: The batch that it is about.
        engines: Those that an act on it is for, drained ones or the one to profile: address and
            name.
    """

    code: str
    tone: str
    what: str
    cause: str = ""
    unnamed: str = ""
    batch_id: str = ""
    engines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """One answer of the verdict.

    Attributes:
        state: For programs.
        tone: `good`, `warn`, `bad`, or `idle` where nothing can be said.
        says: For people.
    """

    state: str
    tone: str
    says: str


@dataclass(frozen=True)
class Verdict:
    """What is said of the service, worst issues first."""

    chat: Line
    harvest: Line
    batches: Line
    parts: Line
    issues: Sequence[Issue]

    @property
    def lines(self) -> Mapping[str, Line]:
        """The four answers by their names."""
        return {
            "chat": self.chat,
            "harvest": self.harvest,
            "batches": self.batches,
            "parts": self.parts,
        }

    @property
    def degraded(self) -> bool:
        """Whether requests or batches suffer."""
        return any(issue.tone == "bad" for issue in self.issues)

    def unnamed(self) -> dict[str, Any]:
        """For whoever asks without a key."""
        lines = {
            name: {"state": one.state, "tone": one.tone, "says": one.says}
            for name, one in self.lines.items()
        }
        issues = [
            {
                "code": one.code,
                "tone": one.tone,
                "what": one.unnamed or one.what,
                "cause": "" if one.unnamed else one.cause,
            }
            for one in self.issues
        ]
        return {**lines, "issues": issues}


def judge(facts: Facts) -> Verdict:
    """The verdict on some facts."""
    late = [*_late(facts)]
    answers = [*_answers(facts)]
    engines = [*_engines(facts.engines)]
    batches = [*_batches(facts)]
    parts = [*_parts(facts)]
    issues = [*engines, *late, *answers, *batches, *parts, *_receivers(facts.receivers)]
    return Verdict(
        chat=_chat(facts, [*late, *answers]),
        harvest=_harvest(facts),
        batches=_batches_line(facts, batches),
        parts=_parts_line(facts, [*engines, *parts]),
        issues=sorted(issues, key=lambda one: one.tone != "bad"),
    )


def tone_of(share: float | None) -> str:
    """The kind of colour that goes with a share in time."""
    if share is None:
        return "idle"
    return "good" if share >= GOOD_SHARE else "warn" if share >= FAIR_SHARE else "bad"


def shortest(look_backs: Sequence[LookBack], num: Callable[[LookBack], float]) -> LookBack | None:
    """The shortest look back that holds enough samples; none where not even the longest does."""
    return next((one for one in look_backs if num(one) >= MIN_JUDGED), None)


# --- Chat


def _chat(facts: Facts, issues: Sequence[Issue]) -> Line:
    """One sentence on chat: the worst that was measured."""
    if not any(one.open for one in facts.engines):
        return Line("refused", "bad", "Chat is refused: no engine takes requests.")
    if facts.look_backs is None:
        return Line("unknown", "idle", "Chat was not measured: the database does not answer.")
    failing = next((one for one in issues if one.code.startswith("requests_")), None)
    if failing is not None and failing.tone == "bad":
        return Line("failing", "bad", f"{failing.what}.")
    kept = {of: _judged(facts.look_backs, of) for of in LATENCIES}
    told = [
        (share, f"{LATENCIES[of]} {wording.share(share)} ({back.label})")
        for of, back in kept.items()
        if back is not None and (share := back.of(f"{of}:online").share) is not None
    ]
    if told:
        worst = min(share for share, _ in told)
        said = ", ".join(words for _, words in told)
        state = "in_time" if worst >= GOOD_SHARE else "late"
        words = "in time" if state == "in_time" else "late"
        wanted = "" if state == "in_time" else f"; {wording.share(GOOD_SHARE)} should be in time"
        return Line(state, tone_of(worst), f"Chat is {words}: {said}{wanted}.")
    return _unjudged(facts, failing)


def _unjudged(facts: Facts, failing: Issue | None) -> Line:
    """What is said where no latency can be judged."""
    if failing is not None:
        return Line("failing", failing.tone, f"{failing.what}.")
    hour = (facts.look_backs or [LookBack(60)])[-1]
    num_streams = max(hour.of(f"{of}:online").num for of in LATENCIES)
    num_judged = max(hour.of(f"{of}:online").judged for of in LATENCIES)
    if not num_streams and not hour.num_answers:
        return Line("none", "idle", "No chat in the last hour.")
    if not facts.targets_s and not num_judged:
        return Line("no_target", "idle", "No latency target is set, so chat is not judged.")
    seen = _counted(int(num_streams or hour.num_answers), "sample")
    return Line("too_few", "idle", f"Too little chat to judge: {seen} in the last hour.")


def _judged(look_backs: Sequence[LookBack], of: str) -> LookBack | None:
    return shortest(look_backs, lambda one: one.of(f"{of}:online").judged)


def _late(facts: Facts) -> Iterator[Issue]:
    """Targets that chat misses, each with its cause."""
    for of, name in LATENCIES.items():
        back = _judged(facts.look_backs or (), of)
        share = None if back is None else back.of(f"{of}:online").share
        if back is None or share is None or share >= GOOD_SHARE:
            continue
        code, why = _why_late(facts, back, of, share)
        said = (
            f"{wording.share(share)} in time ({back.label}), {wording.share(GOOD_SHARE)} should be"
        )
        what, old = f"{name.capitalize()} miss their target: {said}", code == "late_old_profile"
        profiled = {one.url: one.name for one in [_slowest(facts)] if one and old}
        yield Issue(code, tone_of(share), what, why.strip(), engines=profiled)


def _why_late(facts: Facts, back: LookBack, of: str, share: float) -> tuple[str, str]:
    """The code and the words of the first cause in the head of this module that applies."""
    sides = {
        "beside batch work": back.of(f"beside:{of}"),
        "without": back.of(f"apart:{of}"),
    }
    known = {words: one for words, one in sides.items() if one.judged >= MIN_JUDGED}
    told = ", ".join(f"{wording.share(one.share)} {words}" for words, one in known.items())
    told = f" In the engines {told}." if told else ""
    if known and 1.0 - _worst(known) < (1.0 - share) / 2:
        return "late_outside", f"The time is lost on the way to the engines or from them.{told}"
    at_work = [one for one in facts.engines if one.open]
    if any(one.profile == "measuring" for one in at_work):
        return "late_measuring", f"An engine still measures how long its steps take.{told}"
    slowest = _slowest(facts)
    if slowest is not None and slowest.slowdown is not None and slowest.slowdown >= SLOW_RATIO:
        return _why_slow(slowest, told)
    if missing := [one for one in facts.engines if not one.open]:
        states = [
            f"{len(some)} {word}"
            for word, some in (
                ("drained", [one for one in missing if one.up]),
                ("lost", [one for one in missing if not one.up]),
            )
            if some
        ]
        left = _get_requests(len(at_work), len(facts.engines))
        return "late_fewer_engines", f"{left}: {', '.join(states)}.{told}"
    apart = known.get("without")
    if apart is None or apart.share is None:
        return "late", told
    if apart.share >= GOOD_SHARE:
        return "late_batch_work", f"Batch work delays it.{told}"
    return "late_too_much_chat", f"There is more chat than the engines can serve.{told}"


def _slowest(facts: Facts) -> Engine | None:
    """Of the engines at work the one whose steps take longest beside its profile."""
    at_work = [one for one in facts.engines if one.open]
    return max(at_work, key=lambda one: one.slowdown or 0.0, default=None)


def _why_slow(engine: Engine, told: str) -> tuple[str, str]:
    said = f"Steps take {engine.slowdown:.1f} times as long as profiled"
    if engine.usual_slowdown is None:
        why = "another program uses the machine, or the profile is old"
        return "late_slow_machine", f"{said}: {why}.{told}"
    if engine.usual_slowdown >= SLOW_RATIO:
        return "late_old_profile", f"{said}, as all day: the profile is old.{told}"
    return "late_slow_machine", f"{said}: another program uses the machine.{told}"


def _worst(kept: Mapping[str, Kept]) -> float:
    return min(one.share for one in kept.values() if one.share is not None)


def _answers(facts: Facts) -> Iterator[Issue]:
    """Requests that fail, or are refused nearly all."""
    look_backs = facts.look_backs or ()
    back = shortest(look_backs, lambda one: one.num_answers)
    if back is None:
        if look_backs and (hour := look_backs[-1]).num_answers:
            failed = hour.of_kind("5")
            if failed > hour.num_answers / 2:
                what = f"{failed:.0f} of {_counted(int(hour.num_answers), 'request')} failed"
                what = f"{what} in the {hour.label}: {hour.codes('5')}"
                yield Issue("requests_fail", "bad", what)
        return
    for code, of, least, tone, word in (
        ("requests_fail", "5", FAILED_SHARE, "bad", "failed"),
        ("requests_refused", "4", REFUSED_SHARE, "warn", "were refused"),
    ):
        share = back.of_kind(of) / back.num_answers
        if share >= least:
            what = f"{wording.share(share)} of requests {word} in the {back.label}"
            yield Issue(code, tone, f"{what}: {back.codes(of)}")


# --- What was harvested


def _harvest(facts: Facts) -> Line:
    """The amount, and the engine time that it is worth."""
    if facts.harvest is None:
        return Line("unknown", "idle", "What was harvested is not known.")
    if not facts.harvest.tokens:
        return Line("none", "idle", "No batch tokens in the last 24 h.")
    harvest = facts.harvest
    more = ", ".join(part for part in (harvest.time, harvest.worth) if part)
    said = f"{harvest.amount} in the last 24 h, beside chat"
    return Line("harvested", "good", f"{said}: {more}." if more else f"{said}.")


# --- Engines and the other parts


def _engines(engines: Sequence[Engine]) -> Iterator[Issue]:
    """Engines that are lost, drained, or whose scheduler errs."""
    if not engines:
        cause = "ENGINE_URLS names none, and none was registered."
        yield Issue("no_engine", "bad", "There is no engine", cause)
    idle = {one.model for one in engines} - {one.model for one in engines if one.open}
    for model in sorted(idle):
        drained = [one for one in engines if one.model == model and one.up]
        if drained:
            of = f" for {model}" if model else ""
            lost = [one for one in engines if one.model == model and not one.up]
            cause = f"{len(drained)} drained, {len(lost)} lost: chat with it is refused."
            what = f"No engine takes requests{of}"
            names = {one.url: one.name for one in drained}
            yield Issue("all_drained", "bad", what, cause, engines=names)
    for one in engines:
        if not one.up:
            what, cause = f"The engine {one.name} is lost", one.why or "It does not answer."
            yield Issue("engine_lost", "bad", what, cause, "An engine is lost")
        elif one.draining and one.model not in idle:
            cause = "It gets no new request until it is used again."
            yield Issue(
                "engine_drained",
                "warn",
                f"The engine {one.name} is drained",
                cause,
                "An engine is drained",
                engines={one.url: one.name},
            )
        if one.up and one.num_policy_errors:
            what = f"The scheduling policy of {one.name} errs"
            cause = f"{one.num_policy_errors} steps were planned by a plainer policy"
            cause = f"{cause}; the newest error: {one.policy_error}"
            yield Issue(
                "policy_errs", "bad", what, cause, "The scheduling policy of an engine errs"
            )


def _parts(facts: Facts) -> Iterator[Issue]:
    """What stands behind gateway and engines."""
    if facts.num_unusable:
        what = f"{_counted(facts.num_unusable, 'engine')} registered without a usable address"
        yield Issue("engine_unusable", "bad", what, "They get no request: see coserve engine list.")
    if not facts.database_answers:
        cause = "Chat goes on with the keys that are known; batches wait."
        yield Issue("database_away", "bad", "The database does not answer", cause)
    elif not facts.database_takes_writes:
        cause = "It is a standby, or read-only. Chat goes on; files, batches and usage wait."
        yield Issue("database_away", "bad", "The database takes no writes", cause)
    if not facts.broker_answers:
        cause = (
            "Valkey cannot be reached. Chat goes on, and each gateway counts limits alone; batches "
            "are created, but nothing new is begun for them."
        )
        yield Issue("broker_away", "bad", "The broker does not answer", cause)
    for place in sorted(FULL.keys() & facts.full):  # a newer version may name more
        yield Issue("disk_full", "bad", *FULL[place])
    if facts.disk is not None and facts.disk.used_share >= NEARLY_FULL_SHARE:
        free, total = wording.size(facts.disk.free_bytes), wording.size(facts.disk.total_bytes)
        cause = f"{free} of {total} are free below COSERVE_HOME."
        if facts.disk.used_share >= FULL_SHARE:
            yield Issue("disk_full", "bad", "The disk is full", cause)
        else:
            yield Issue("disk_nearly_full", "warn", "The disk is nearly full", cause)
    if facts.sweep_age_s is not None and facts.sweep_age_s > SWEEP_LATE_S:
        ago = wording.about(facts.sweep_age_s)
        cause = f"Their last sweep was {ago} ago; there should be one every 3 s."
        yield Issue("workers_away", "bad", "The workers do not run", cause)
    if facts.stage_wait_s is not None and facts.stage_wait_s >= STAGE_LATE_S:
        cause = f"It has waited {wording.about(facts.stage_wait_s)}."
        yield Issue("stages_late", "bad", "A batch waits for a worker", cause)
    if facts.loops_down:
        cause = f"{', '.join(facts.loops_down)}; its log says why."
        yield Issue("loop_down", "bad", "Background work of a gateway keeps failing", cause)


def _get_requests(num: int, num_all: int) -> str:
    """So many engines of all, as a sentence whose verb agrees."""
    verb = "gets" if 1 in (num, num_all) else "get"
    return f"{num} of {_counted(num_all, 'engine')} {verb} requests"


def _parts_line(facts: Facts, issues: Sequence[Issue]) -> Line:
    """How many engines get requests, and what of the rest is wrong."""
    num_open = sum(one.open for one in facts.engines)
    said = _get_requests(num_open, len(facts.engines))
    wrong = [one for one in issues if not one.code.startswith("engine_") or not num_open]
    tone = "bad" if any(one.tone == "bad" for one in issues) else "warn" if issues else "good"
    if not facts.engines:
        said = "No engine"
    if wrong:
        named = "; ".join(one.unnamed or one.what for one in wrong[:MAX_NAMED])
        return Line("degraded", tone, f"{said}. {named}.")
    return Line("degraded" if issues else "ready", tone, f"{said}.")


# --- Batches and those who are told of their end


def _batches(facts: Facts) -> Iterator[Issue]:
    """Batches that will miss their window, and rows that nobody sends."""
    batches = facts.batches or ()
    for one in batches:
        if one.late_s is not None and one.late_s > 0:
            cause = f"At its pace it ends {wording.about(one.late_s)} too late."
            unnamed = "A batch will miss its window"
            yield Issue(
                "batch_late", "warn", f"{one.name} will miss its window", cause, unnamed, one.id
            )
    age_s = facts.heartbeat_age_s
    if age_s is not None and age_s <= DISPATCHER_LATE_S:
        return
    waits = next((one for one in batches if one.unsent_s > UNSENT_S), None)
    if waits is not None:
        heard = "There is none"
        if age_s is not None:
            heard = f"The last one was heard of {wording.about(age_s)} ago"
        what, cause = "No dispatcher is at work", f"{heard}; rows of {waits.name} wait."
        yield Issue("dispatcher_away", "bad", what, cause, what, waits.id)


def _batches_line(facts: Facts, issues: Sequence[Issue]) -> Line:
    if facts.batches is None:
        return Line("unknown", "idle", "Batches are not known: the database does not answer.")
    if not facts.num_live:
        return Line("none", "idle", "No live batches.")
    live = _counted(facts.num_live, "live batch", "es")
    if any(one.code == "dispatcher_away" for one in issues):
        return Line("waiting", "bad", f"{live}: rows wait, no dispatcher is at work.")
    late = [one for one in issues if one.code == "batch_late"]
    if late:
        return Line("late", "warn", f"{live}, {len(late)} will miss the completion window.")
    predicted = [one for one in facts.batches if one.late_s is not None]
    return _predicted_line(live, facts.num_live, predicted)


def _predicted_line(live: str, num_live: int, predicted: Sequence[LiveBatch]) -> Line:
    if len(predicted) == num_live:
        return Line("in_time", "good", f"{live}, predicted to end within the completion window.")
    if predicted:
        said = f"{len(predicted)} predicted to end within the completion window"
        return Line("in_time", "good", f"{live}, {said}, no prediction for the others.")
    return Line("live", "idle", f"{live}, no end predicted yet.")


def _receivers(receivers: Sequence[Receiver]) -> Iterator[Issue]:
    """Webhook receivers that do not answer."""
    disabled = [one for one in receivers if one.disabled]
    failing = [one for one in receivers if one.failing_s is not None and not one.disabled]
    if failing:
        longest_s = max(one.failing_s or 0.0 for one in failing)
        waiting = sum(one.num_waiting for one in failing)
        cause = (
            f"No delivery to {_some(failing)} succeeded for {wording.about(longest_s)};"
            f" {waiting} wait."
        )
        what = f"{_num_receivers(len(failing))} failing"
        yield Issue("receiver_failing", "warn", what, cause, what)
    if disabled:
        what = f"{_num_receivers(len(disabled))} disabled"
        cause = f"Nothing is sent to {_some(disabled)} any more."
        yield Issue("receiver_disabled", "warn", what, cause, what)


def _num_receivers(num: int) -> str:
    return f"{num} webhook {'receiver is' if num == 1 else 'receivers are'}"


def _some(receivers: Sequence[Receiver]) -> str:
    """Names of the first few, quoted: a name may read like a sentence."""
    names = [f"“{one.name}”" for one in receivers]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _counted(num: int, noun: str, plural: str = "s") -> str:
    return f"{num:,} {noun}{'' if num == 1 else plural}"
