"""What can be tuned about a policy, with defaults that need no tuning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_POLICY: Final = "conserve_v2"

# --- How much of chat's pace offline work may take: three levels.
#
# A step beside online requests may last until the earliest deadline, but the last part of it buys
# little: its fixed cost is spread over more work the longer it is, ever more slowly. With ``n``
# offline tokens beside the online decoding requests a step takes ``T(n)``, and offline work goes on
# at the rate
#
#     r(n) = n / T(n)
#
# which rises towards the rate of an endless step. The *efficient step* is the shortest one whose
# rate reaches a share of that of a step filled to its deadline.
#
#     invisible   a step may last 1.05 times the online requests alone, and has nothing beside an
#                 online prompt: what one step delays, every prompt behind it waits for
#     balanced    the efficient step, at 0.95 of the full rate
#     max         the deadline


class Level(StrEnum):
    """What an operator asks for."""

    INVISIBLE = "invisible"
    BALANCED = "balanced"
    MAX = "max"


LEVEL_KNOB: Final = "coserve_level"
"""Tells an engine at work a new level: by its place in `Level`, since SGLang takes numbers."""

PROFILE_KNOB: Final = "coserve_profile"
"""Tells an engine at work to measure its profile anew; its value says nothing."""

DEFAULT_LEVEL: Final = Level.BALANCED
"""Of an engine; a policy by itself fills steps to their deadline."""


@dataclass(frozen=True, slots=True)
class LevelRule:
    """What a level means for one step.

    Attributes:
        longest: Most of a step beside online requests, in times of those alone.
        rate_share: Share of the full rate of offline work at which a step is long enough.
        own_steps: Whether offline prompts may have a step of their own beside online requests.
        beside_prompts: Whether a step that computes online prompts may hold offline work.
    """

    longest: float = math.inf
    rate_share: float = 1.0
    own_steps: bool = True
    beside_prompts: bool = True


LEVEL_RULES: Final = {
    Level.INVISIBLE: LevelRule(longest=1.05, own_steps=False, beside_prompts=False),
    Level.BALANCED: LevelRule(rate_share=0.95),
    Level.MAX: LevelRule(),
}

RULES = ("slowdown", "quantile", "first_token", "ratio_order", "even_share")
"""What an ablation can leave out, beside the switches below; docs/scheduler-figures.md has them."""

TTFT_PLANNING_SHARE = 0.5
"""Costs one to three points of the offline work; 0.3 leaves less than is asked (decision 0154)."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Knobs of the policies.

    Attributes:
        safepoints: Arm safepoints where the executor has them (ablation switch).
        checkpoints: Copy KV of offline requests to the host while they run (ablation switch).
        drop_mixed: Arm mixed steps too, dropping their offline requests on a stop.
        safepoint_interval_s: Distance of safepoints, and what a stop has to save; 0 leaves both to
            the policy.
        offline_step_factor: Longest armed offline-only step, in TTFT targets.
        typical_online_tokens: Prompt length assumed for the next online request until some have
            been seen.
        growth_tokens: Output tokens per running request for which pages are kept back when another
            offline request is admitted.
        ttft_planning_share: Share of the TTFT target for which first tokens are planned; the rest
            is for prompts that come meanwhile. 1 is just in time.
        checkpoint_free_share: Share of free KV above which nothing is copied (ConServe v1: half).
        checkpoint_online_share: Share of free KV below which online requests are copied too.
        batch_min_share: Share of offline admissions that goes to the batch served least, so that
            no batch starves behind earlier deadlines.
        flex_max_share: Most of the slots open to offline work that flex requests may hold.
        level: How much of chat's pace offline work may take.
        token_budget: Tokens per step of the policy that counts tokens instead of time.
        without: Rules left out, of :data:`RULES` (ablations).
    """

    safepoints: bool = True
    checkpoints: bool = True
    drop_mixed: bool = True
    safepoint_interval_s: float = 0.0
    offline_step_factor: float = 2.0
    typical_online_tokens: int = 256
    growth_tokens: int = 64
    ttft_planning_share: float = TTFT_PLANNING_SHARE
    checkpoint_free_share: float = 0.5
    checkpoint_online_share: float = 0.1
    batch_min_share: float = 0.5
    flex_max_share: float = 0.5
    level: Level = Level.MAX
    token_budget: int = 256
    without: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse shares outside their range.

        Raises:
            ValueError: Naming the setting and its range.
        """
        for name in (
            "checkpoint_free_share",
            "checkpoint_online_share",
            "ttft_planning_share",
            "batch_min_share",
            "flex_max_share",
        ):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value!r}; give a number between 0 and 1")
        if unknown := self.without - set(RULES):
            raise ValueError(f"no rules {sorted(unknown)}; there are {', '.join(RULES)}")
        if self.safepoint_interval_s < 0.0 or self.offline_step_factor <= 0.0:
            raise ValueError("safepoint_interval_s must be >= 0 and offline_step_factor > 0")
