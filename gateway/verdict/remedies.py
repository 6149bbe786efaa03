"""What to do about an issue: the steps of its page of the runbook, and the acts that are a button.

`runbook.json` holds the section "Do" of each page below docs/operations/runbook, so that it is at
hand where the product is installed without its docs. A test writes it anew and holds it equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

RUNBOOK: Final = Path(__file__).with_name("runbook.json")
FOLDER: Final = "docs/operations/runbook"


class Act(StrEnum):
    """What can be done at once where the issue is shown."""

    PAUSE_ALL = "pause_all"
    USE_AGAIN = "use_again"
    PREFER = "prefer"
    PROFILE = "profile"


@dataclass(frozen=True)
class Remedy:
    """What helps against one kind of issue.

    Attributes:
        page: Of the runbook; it is the name of the alert too.
        when: The rows of its table that fit; none: all of them.
        acts: What can be done at once.
    """

    page: str
    when: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True)
class Step:
    """One row of a page's table, or one entry of its list.

    Attributes:
        when: If what; empty: in any case.
        what: What to do. Words between backticks are commands and names.
    """

    when: str
    what: str


LATE: Final = "CoserveTargetBurnsFast"
LOST: Final = "CoserveEngineLost"
REMEDIES: Final[Mapping[str, Remedy]] = {
    "no_engine": Remedy(LOST, ("there is no engine at all",)),
    "all_drained": Remedy(LOST, ("it was drained",), (Act.USE_AGAIN,)),
    "engine_drained": Remedy(LOST, ("it was drained",), (Act.USE_AGAIN,)),
    "engine_lost": Remedy(
        LOST,
        (
            "it runs on one machine with the rest",
            "it ran out of memory",
            "it is gone for good",
        ),
    ),
    "engine_unusable": Remedy(LOST, ("it is registered without a usable address",)),
    "policy_errs": Remedy("CoservePolicyErrs"),
    "late": Remedy(LATE, acts=(Act.PAUSE_ALL,)),
    "late_outside": Remedy(LATE, ("it is in time in the engines",)),
    "late_measuring": Remedy(LATE, ("an engine still measures its profile",)),
    "late_old_profile": Remedy(
        LATE, ("the profile is old, or another machine's",), (Act.PROFILE, Act.PAUSE_ALL)
    ),
    "late_slow_machine": Remedy(
        LATE,
        ("another program uses the machine", "the profile is old, or another machine's"),
        (Act.PAUSE_ALL,),
    ),
    "late_fewer_engines": Remedy(LATE, ("an engine is lost or drained",), (Act.PAUSE_ALL,)),
    "late_batch_work": Remedy(LATE, ("it is late only beside batch work",), (Act.PAUSE_ALL,)),
    "late_too_much_chat": Remedy(
        LATE,
        ("there is more chat than the engine can serve", "the target is unreachable"),
        (Act.PAUSE_ALL,),
    ),
    "requests_fail": Remedy("CoserveErrors", ("503", "500 on one route")),
    "requests_refused": Remedy(
        "CoserveErrors",
        (
            "most are refused with 401 or 403",
            "most are refused with 429",
            "most are refused with 400 or 422",
        ),
    ),
    "database_away": Remedy("CoserveDatabaseAway"),
    "broker_away": Remedy("CoserveBrokerAway"),
    "disk_full": Remedy("CoserveDiskFull", acts=(Act.PAUSE_ALL,)),
    "disk_nearly_full": Remedy("CoserveDiskNearlyFull"),
    "workers_away": Remedy("CoserveSweepLate"),
    "stages_late": Remedy("CoserveStagesLate"),
    "loop_down": Remedy("CoserveLoopDown"),
    "batch_late": Remedy("CoserveBatchLate", acts=(Act.PREFER,)),
    "dispatcher_away": Remedy("CoserveDispatcherLost"),
    "receiver_failing": Remedy("CoserveWebhooksFail", ("one receiver fails", "all fail at once")),
    "receiver_disabled": Remedy("CoserveWebhooksFail", ("it was disabled",)),
}
"""By the code of the issue. Each code that a verdict may have is here."""


@cache
def runbook() -> Mapping[str, Sequence[Step]]:
    """The steps of each page."""
    told = json.loads(RUNBOOK.read_text())
    return {page: [Step(**one) for one in steps] for page, steps in told.items()}


def steps(code: str) -> Sequence[Step]:
    """What to do about an issue of this kind."""
    remedy = REMEDIES[code]
    return [step for step in runbook()[remedy.page] if not remedy.when or step.when in remedy.when]


def in_words(code: str) -> str:
    """The same for a terminal, and where the whole page is."""
    told = "; ".join(
        f"{step.when}: {step.what}" if step.when else step.what.rstrip(".") for step in steps(code)
    )
    return f"{told.replace('`', '')}. {FOLDER}/{REMEDIES[code].page}.md"
