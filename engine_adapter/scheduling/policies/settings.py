"""What can be tuned about a policy, with defaults that need no tuning."""

from __future__ import annotations

from dataclasses import dataclass

RULES = ("level", "quantile", "first_token")
"""What an ablation can leave out, beside the switches below; docs/scheduler.md has them."""

FIRST_TOKEN_SHARE = 0.5
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
        first_token_share: Share of the TTFT target for which first tokens are planned; the rest is
            for prompts that come meanwhile. 1 is just in time.
        checkpoint_free_share: Share of free KV above which nothing is copied (ConServe v1: half).
        checkpoint_online_share: Share of free KV below which online requests are copied too.
        batch_min_share: Share of offline admissions that goes to the batch served least, so that
            no batch starves behind earlier deadlines.
        flex_max_share: Most of the slots open to offline work that flex requests may hold.
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
    first_token_share: float = FIRST_TOKEN_SHARE
    checkpoint_free_share: float = 0.5
    checkpoint_online_share: float = 0.1
    batch_min_share: float = 0.5
    flex_max_share: float = 0.5
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
            "first_token_share",
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
