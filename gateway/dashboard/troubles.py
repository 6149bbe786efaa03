"""What is wrong now: each trouble with its cause, and where to look or act. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine_adapter.client.pool import Member
from gateway.dashboard import wording
from gateway.dashboard.views import BatchView
from gateway.history.reading import Moment
from store.repositories.webhook_overview import EndpointOverview

GOOD_SHARE, FAIR_SHARE = 0.95, 0.90
"""Attainment is green from the first on, amber from the second, else red."""
MIN_JUDGED = 20
"""A share of fewer latencies is chance."""
FULL_SHARE, NEARLY_FULL_SHARE = 0.95, 0.90
SWEEP_LATE_S = 30.0
DISPATCHER_LATE_S = 30.0
MAX_NAMED = 3
WAITS_LONG_S = 60.0
"""A batch gets a dispatcher within seconds: one that has waited for so long should have one."""


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong.

    Attributes:
        tone: `bad` if requests or batches suffer, `warn` if they will.
        what: What is wrong.
        cause: Why, as far as it is known.
        path: Below the dashboard's root, where to look.
        link: What that is called.
    """

    tone: str
    what: str
    cause: str
    path: str
    link: str


@dataclass(frozen=True)
class Storage:
    """How full a disk is."""

    total_bytes: int
    free_bytes: int

    @property
    def used_share(self) -> float:
        """0 to 1."""
        return 1.0 - self.free_bytes / max(1, self.total_bytes)


def attainment_tone(share: float | None) -> str:
    """The kind of colour that goes with a share in time."""
    if share is None:
        return "idle"
    return "good" if share >= GOOD_SHARE else "warn" if share >= FAIR_SHARE else "bad"


def of_engines(members: Sequence[Member], names: Mapping[str, str]) -> Iterator[Trouble]:
    """Engines that are lost, or none at all, and those whose scheduler errs.

    Args:
        members: Every engine in use.
        names: What those that have a name are called, by address.
    """
    if not members:
        cause = "ENGINE_URLS names none, and none was registered."
        yield Trouble("bad", "There is no engine", cause, "/engines", "Engines")
    for member in members:
        name = names.get(member.url, member.url)
        if not member.up:
            what = f"The engine {name} is lost"
            yield Trouble("bad", what, member.why or "It does not answer.", "/engines", "Engines")
        elif member.facts is not None and member.facts.reported("policy_errors"):
            what = f"The scheduling policy of {name} errs"
            cause = (
                f"{member.facts.reported('policy_errors')} steps were planned by a plainer policy; "
                f"the newest error: {member.facts.reported('last_policy_error')}"
            )
            yield Trouble("bad", what, cause, "/scheduler", "Scheduler")


def of_targets(now: Moment) -> Iterator[Trouble]:
    """Targets that online requests miss at the moment."""
    for of, name in (("ttft", "first tokens"), ("tbt", "gaps between tokens")):
        seen = now.of(f"{of}:online")
        share = seen.share_in_time
        if share is None or sum(seen.figures[:2]) < MIN_JUDGED or share >= GOOD_SHARE:
            continue
        what = f"{name.capitalize()} miss their target"
        said, wanted = wording.share(share), wording.share(GOOD_SHARE)
        cause = (
            f"{said} were in time over the last minute; {wanted} should be.{_where(now, of, share)}"
        )
        yield Trouble(attainment_tone(share), what, cause, "/scheduler", "Scheduler")


def _where(now: Moment, of: str, in_time: float) -> str:
    """What engines say of the same minute, beside batch work and without; empty if too little.

    Of the misses in the share that callers saw engines may explain less than half.
    """
    known = {}
    for kind, words in (("beside", "beside batch work"), ("apart", "without")):
        seen = now.of(f"{kind}:{of}")
        share = seen.share_in_time
        if share is not None and sum(seen.figures[:2]) >= MIN_JUDGED:
            known[words] = share
    if not known:
        return ""
    told = ", ".join(f"{wording.share(share)} {words}" for words, share in known.items())
    alone = known.get("without")
    if 1.0 - min(known.values()) < (1.0 - in_time) / 2:
        why = ": the time is lost on the way to them or from them"
    elif alone is None:
        why = ""
    elif alone >= GOOD_SHARE:
        why = ": batch work delays it"
    else:
        why = ": chat alone is too much for them"
    return f" In the engines {told}{why}."


def of_batches(batches: Sequence[BatchView]) -> Iterator[Trouble]:
    """Live batches that will miss their window."""
    for view in batches:
        if view.late and view.predicted_finish_at is not None:
            over_s = (view.predicted_finish_at - view.batch.expires_at).total_seconds()
            yield Trouble(
                "warn",
                f"{view.source.input_name} will miss its window",
                f"At its pace it ends {wording.about(over_s)} too late.",
                f"/batches/{view.batch.id}",
                "The batch",
            )


def of_receivers(receivers: Sequence[EndpointOverview]) -> Iterator[Trouble]:
    """Webhook receivers that do not answer."""
    disabled = [one for one in receivers if one.endpoint.disabled_at is not None]
    failing = [
        one
        for one in receivers
        if one.endpoint.failing_since_at is not None and one.endpoint.disabled_at is None
    ]
    if failing:
        since = min(one.endpoint.failing_since_at or one.now for one in failing)
        wait = sum(one.num_pending for one in failing)
        cause = (
            f"Deliveries to {_some(failing)} got no good answer for"
            f" {wording.about((failing[0].now - since).total_seconds())}; {wait} wait."
        )
        what = f"{_receivers(len(failing))} failing"
        yield Trouble("warn", what, cause, "/webhooks", "Webhooks")
    if disabled:
        cause = f"Nothing is sent to {_some(disabled)} any more."
        what = f"{_receivers(len(disabled))} disabled"
        yield Trouble("bad", what, cause, "/webhooks", "Webhooks")


def _receivers(num: int) -> str:
    return f"{num} webhook {'receiver is' if num == 1 else 'receivers are'}"


def _some(receivers: Sequence[EndpointOverview]) -> str:
    """Names of the first few."""
    names = [one.endpoint.name for one in receivers]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def of_storage(disk: Storage | None) -> Iterator[Trouble]:
    """A disk that is nearly full."""
    if disk is not None and disk.used_share >= NEARLY_FULL_SHARE:
        tone = "bad" if disk.used_share >= FULL_SHARE else "warn"
        free, total = wording.size(disk.free_bytes), wording.size(disk.total_bytes)
        cause = f"{free} of {total} are free below COSERVE_HOME."
        yield Trouble(tone, "Storage is nearly full", cause, "/batches?group=done", "Old batches")


def of_full(places: Sequence[str]) -> Iterator[Trouble]:
    """Places that take nothing more."""
    for place in places:
        name = "file store" if place == "files" else "database"
        cause = "Writes failed for want of room; batches wait until there is some, chat goes on."
        yield Trouble("bad", f"The {name} is full", cause, "/batches?group=done", "Old batches")


def of_broker(answers: bool) -> Iterator[Trouble]:
    """A broker that carries no messages."""
    if not answers:
        cause = (
            "Valkey cannot be reached. Chat goes on, and each gateway counts limits alone; batches "
            "are created, but nothing new is begun for them."
        )
        yield Trouble(
            "bad", "The broker does not answer", cause, "/batches?group=live", "Live batches"
        )


def of_workers(sweep_age_s: float | None) -> Iterator[Trouble]:
    if sweep_age_s is not None and sweep_age_s > SWEEP_LATE_S:
        cause = (
            f"Their last sweep was {wording.about(sweep_age_s)} ago; there should be one every 3 s."
        )
        yield Trouble("bad", "The workers do not run", cause, "/batches?group=live", "Live batches")


def of_dispatchers(
    batches: Sequence[BatchView], heartbeat_age_s: float | None
) -> Iterator[Trouble]:
    """Rows that nobody sends to the engines.

    Args:
        batches: Live ones.
        heartbeat_age_s: Of the dispatcher that was heard of last; none where there is none.
    """
    if heartbeat_age_s is not None and heartbeat_age_s <= DISPATCHER_LATE_S:
        return
    heard = "There is none"
    if heartbeat_age_s is not None:
        heard = f"The last one was heard of {wording.about(heartbeat_age_s)} ago"
    for view in batches:
        if view.waits_since_s > WAITS_LONG_S:
            cause = f"{heard}; rows of {view.source.input_name} wait."
            path = f"/batches/{view.batch.id}"
            yield Trouble("bad", "No dispatcher is at work", cause, path, "The batch")
            return
