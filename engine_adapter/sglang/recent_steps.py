"""The newest steps, one line each, for a page that draws them."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from engine_adapter.scheduling.plan import Outcome
from engine_adapter.sglang.launched_step import LaunchedStep

NUM_KEPT: Final = 200


class RecentSteps:
    """A ring of finished steps."""

    def __init__(self) -> None:
        """Start with none."""
        self._steps: deque[tuple[Any, ...]] = deque(maxlen=NUM_KEPT)

    def add(self, step: LaunchedStep, outcome: Outcome, flex_tokens: int) -> None:
        """Take in a finished step."""
        self._steps.append(
            (
                step.started_at_s,
                outcome.online_tokens,
                flex_tokens,
                outcome.offline_tokens - flex_tokens,
                round(step.plan.predicted_s * 1e3, 3),
                round(outcome.measured_s * 1e3, 3),
                outcome.stopped_at_layer,
            )
        )

    def to_plain(self, now_s: float) -> list[list[Any]]:
        """Oldest first.

        Each: seconds since its launch, tokens kept of online, flex and offline requests, predicted
            ms,
        measured ms, and the layer at which it was stopped or None.
        """
        return [[round(now_s - started_s, 3), *rest] for started_s, *rest in self._steps]
