"""Whose step is next, where two kinds of work cannot share one.

Two pairs can meet for which that holds:

- offline prompts and online decode rows, where one of the two asks for log-probabilities or the
  executor cannot mix: prompts get a step of their own after one in which they were passed over;
- offline prompts and offline decode rows, for the same reasons or because sharing does not pay:
  decode rows come first after a few steps of prompts that left them out.
"""

from __future__ import annotations

from engine_adapter.policies.parts.builder import PlanBuilder
from engine_adapter.policies.parts.rows import RowsByRole

# Steps in a row without anything offline, after which nobody waits for an offline row to end.
STALLED_STEPS = 16
# Steps of prompts in a row that decode rows wait for. Strictly in turn would cost 2 % of the tokens
# on a CPU: more decode rows share a step after a few prompts.
PATIENT_STEPS = 4


class Turns:
    """What the last step left out, and the next one therefore begins with.

    Attributes:
        prompts_owed: Beside online decode rows a prompt that cannot share a step with them came
            before any other.
        is_refused: The newest turn of such a prompt had no room for it.
        decode_owed: Offline decode rows were left out for offline prompts a few times in a row.
    """

    def __init__(self) -> None:
        """Nothing is owed."""
        self.prompts_owed = self.decode_owed = self.is_refused = False
        self._passed_over = False
        self._idle_steps = self._prompt_steps = 0

    @property
    def is_stalled(self) -> bool:
        """Whether offline rows hold what others wait for and do not move beside online ones."""
        return self._idle_steps >= STALLED_STEPS

    def pass_over(self, builder: PlanBuilder) -> None:
        """A prompt cannot share the step."""
        self._passed_over = self._passed_over or not builder.has_chunks

    def close(self, builder: PlanBuilder, rows: RowsByRole) -> None:
        """The step has its offline rows."""
        self.prompts_owed, self._passed_over = self._passed_over, False
        moved = builder.num_offline > 0 or not rows.offline
        self._idle_steps = 0 if moved else self._idle_steps + 1
        self._prompt_steps = self._prompt_steps + 1 if self._is_left_out(builder, rows) else 0
        self.decode_owed = self._prompt_steps >= PATIENT_STEPS

    def _is_left_out(self, builder: PlanBuilder, rows: RowsByRole) -> bool:
        """Whether decode rows have to wait for a step of prompts; one of many beside online rows.

        There is seldom time for all of them there.
        """
        if not builder.has_chunks or not builder.num_offline:
            return False
        ready, taken = rows.offline_decode.rows, builder.taken
        num_left = sum(row.rid not in taken for row in ready)
        return num_left >= max(1, len(ready) if builder.num_online else 1)
