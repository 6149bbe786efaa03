"""What a step shall do: a decision as plain data."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class StepKind(enum.StrEnum):
    """Which executor runs the step; each has its own latency fit."""

    IDLE = "idle"
    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"


class SafepointMode(enum.StrEnum):
    """What a stop word does to the step while it runs."""

    NONE = "none"
    ABORT = "abort"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute the next ``num_tokens`` prompt tokens of ``rid``.

    A row without a slot gets one by being named here.
    """

    rid: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Copy host pages ``[from_page, from_page + num_pages)`` of ``rid`` to the host pool."""

    rid: str
    from_page: int
    num_pages: int


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Bring host pages ``[from_page, from_page + num_pages)`` of ``rid`` back to the device.

    The first order (``from_page == 0``) also gives the row a slot.
    """

    rid: str
    from_page: int
    num_pages: int


@dataclass(frozen=True, slots=True)
class Safepoints:
    """Whether the step may be stopped between layers, and how often it looks."""

    mode: SafepointMode = SafepointMode.NONE
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that changes with one step.

    Applied in this order: retracts, prefetches, checkpoints, then the forward pass over
    ``decode`` and ``prefill``. Rows that hold a slot and are named nowhere keep their KV and wait;
    those among them that decoded or prefilled before are listed in ``parks``.

    Attributes:
        step_id: The snapshot's step id.
        decode: Rows that compute one token, online first.
        prefill: Prompt tokens to compute, online first.
        parks: Slot holders able to run that are left out of this step.
        retracts: Rows that give up slot and device pages.
        checkpoints: Copies to the host pool.
        prefetches: Copies back from it.
        safepoints: Armed mode while the step runs.
        predicted_s: Predicted duration.
        budget_s: Bound the plan was filled to; infinite without an SLO bound.
        calibration: Factor in the prediction by which steps of this kind differed from their
            profile of late.
    """

    step_id: int
    decode: tuple[str, ...] = ()
    prefill: tuple[Chunk, ...] = ()
    parks: tuple[str, ...] = ()
    retracts: tuple[str, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    prefetches: tuple[Prefetch, ...] = ()
    safepoints: Safepoints = Safepoints()
    predicted_s: float = 0.0
    budget_s: float = 0.0
    calibration: float = 1.0

    @property
    def kind(self) -> StepKind:
        """Which executor this plan needs."""
        if self.decode:
            return StepKind.MIXED if self.prefill else StepKind.DECODE
        return StepKind.PREFILL if self.prefill else StepKind.IDLE

    @property
    def is_empty(self) -> bool:
        """Whether no token is computed."""
        return not self.decode and not self.prefill

    @property
    def num_tokens(self) -> int:
        """Tokens computed by the step."""
        return len(self.decode) + sum(chunk.num_tokens for chunk in self.prefill)

    def to_plain(self) -> dict[str, Any]:
        """Lists, strings and numbers only: what travels from rank 0 to the other ranks."""
        return {
            "step_id": self.step_id,
            "decode": list(self.decode),
            "prefill": [[c.rid, c.num_tokens] for c in self.prefill],
            "parks": list(self.parks),
            "retracts": list(self.retracts),
            "checkpoints": [[c.rid, c.from_page, c.num_pages] for c in self.checkpoints],
            "prefetches": [[p.rid, p.from_page, p.num_pages] for p in self.prefetches],
            "safepoints": [str(self.safepoints.mode), self.safepoints.interval_s],
            "predicted_s": self.predicted_s,
            "budget_s": self.budget_s,
            "calibration": self.calibration,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> StepPlan:
        """The inverse of :meth:`to_plain`."""
        mode, interval_s = plain["safepoints"]
        return cls(
            step_id=plain["step_id"],
            decode=tuple(plain["decode"]),
            prefill=tuple(Chunk(*chunk) for chunk in plain["prefill"]),
            parks=tuple(plain["parks"]),
            retracts=tuple(plain["retracts"]),
            checkpoints=tuple(Checkpoint(*order) for order in plain["checkpoints"]),
            prefetches=tuple(Prefetch(*order) for order in plain["prefetches"]),
            safepoints=Safepoints(SafepointMode(mode), interval_s),
            predicted_s=plain["predicted_s"],
            budget_s=plain["budget_s"],
            calibration=plain["calibration"],
        )
