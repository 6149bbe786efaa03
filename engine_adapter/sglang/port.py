"""SGLang behind the port that the simulator's engine has too: one step, and where each part is.

::

    snapshot   snapshot.py   the state before the step, from the table of live requests
    plan       planner.py    the policy's decision, checked by the driver
    compose    actuate.py    retracts, restores, checkpoints, then one batch
    launch     launch.py     the forward pass, which the monitor may stop between layers
    outcomes   outcomes.py   what processed steps did

SGLang's loop calls: `coserving` hands each of its calls to one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from engine_adapter.coserving_levels import Ability, Coserving, Found
from engine_adapter.runtime_settings import RuntimeSettings
from engine_adapter.scheduling.answer_lengths import History
from engine_adapter.scheduling.driver import ExecutionPort
from engine_adapter.scheduling.plan import Outcome, RunningStep, StepPlan
from engine_adapter.scheduling.policies.registry import expects_lengths
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang.actuate import Actuator
from engine_adapter.sglang.counters import Counters
from engine_adapter.sglang.forms import Layers
from engine_adapter.sglang.kv import Checkpointer, Restorer, host_pool
from engine_adapter.sglang.launch import Launcher
from engine_adapter.sglang.live_requests import LaunchedStep, LiveRequests
from engine_adapter.sglang.monitor import Monitor
from engine_adapter.sglang.outcomes import FinishedSteps
from engine_adapter.sglang.prefix_tree import PrefixTree
from engine_adapter.sglang.safepoints import RankAgreement, Safepoints
from engine_adapter.sglang.snapshot import SnapshotTaker
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler


class EnginePort(ExecutionPort[LaunchedStep]):
    """The port's engine that is SGLang's scheduler.

    Attributes:
        monitor: Sees arrivals; None on ranks that receive nothing.
        requests: All live requests.
        counters: What was done so far.
        coserving: What is done here.
        lengths: Expects the lengths of answers, for a policy that asks; else None.
        tree: The prefix tree.
        safepoints: Where a pass may stop.
        checkpointer: Copies KV to the host.
        restorer: Copies it back.
        snapshots: Takes the state for the policy.
        actuator: Carries plans out.
        launcher: Launches passes.
        finished_steps: Collects outcomes.
        parked: Ids that the newest step left out.
        unsettled: The step launched last, until its chunks are booked.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        settings: RuntimeSettings,
        limits: Iterable[Found],
        agreement: RankAgreement,
        monitor: Monitor | None,
        run_batch: Callable[[Any], Any],
        finish_pending: Callable[[], None],
    ) -> None:
        """Build the parts beside a scheduler that SGLang has just constructed.

        Args:
            scheduler: SGLang's.
            settings: As the process was started.
            limits: What its model and its pools are limited by.
            agreement: Keeps the ranks together.
            monitor: Sees arrivals.
            run_batch: SGLang's launch of a batch.
            finish_pending: Processes the results of launched steps now.
        """
        self._run_batch = run_batch
        self.monitor = monitor
        self.requests = LiveRequests()
        self.counters = Counters()
        self.lengths = History() if expects_lengths(settings.policy) else None
        self.tree = PrefixTree(scheduler)
        runner = scheduler.tp_worker.model_runner
        layers = Layers.of(runner.model, seam.LAYER_ARGUMENTS)
        self.coserving = Coserving.of([*layers.limits, *limits])
        self.safepoints = Safepoints(runner, agreement, layers.layers)
        copies = self.coserving.can(Ability.COPIES)
        self.checkpointer = Checkpointer(
            scheduler, host_pool(scheduler, settings, agreement, copies=copies)
        )
        self.restorer = Restorer(scheduler, self.checkpointer)
        self.snapshots = SnapshotTaker(
            scheduler,
            self.requests,
            self.tree,
            self.checkpointer,
            settings,
            self.coserving,
            self.safepoints,
        )
        self.actuator = Actuator(
            scheduler,
            self.requests,
            self.tree,
            self.checkpointer,
            self.restorer,
            self.counters,
            finish_pending,
        )
        self.launcher = Launcher(
            scheduler,
            self.safepoints,
            self.snapshots,
            self.actuator,
            self.counters,
            monitor,
            self.checkpointer.pool.page_bytes,
        )
        self.finished_steps = FinishedSteps(
            self.actuator, self.snapshots, self.counters, self.lengths
        )
        self.parked: frozenset[str] = frozenset()
        self.unsettled: LaunchedStep | None = None

    def settle(self) -> None:
        """Book the chunks of the step that was launched last; done before each snapshot."""
        if self.unsettled is not None:
            self.actuator.settle(self.unsettled)
            self.unsettled = None
        self._park(())

    def snapshot(self) -> Snapshot:
        """The state before the next step, with a fresh step id."""
        return self.snapshots.take()

    def compose(self, plan: StepPlan) -> LaunchedStep | None:
        """Carry the plan out up to its batch; None if nothing is computed."""
        step = self.actuator.apply(plan)
        if step is not None:
            self.counters.parks += len(plan.parks)
            self._park(plan.parks)
        return step

    def launch(self, step: LaunchedStep) -> RunningStep:
        """Launch the step's forward pass."""
        self.unsettled = step
        return self.launcher.launch(step, self._run_batch)

    def outcomes(self) -> list[Outcome]:
        """Outcomes that became known since the last call, oldest first."""
        return self.finished_steps.take()

    def give_up_all(self) -> None:
        """Retract every request and forget all copies: weights may change in a pause.

        SGLang promises that all KV is computed again.
        """
        self.actuator.retract(tuple(self.requests.holding))
        for live in self.requests:
            self.checkpointer.forget(live)

    @property
    def copies_cpu_s(self) -> float:
        """Thread CPU time spent on copies of pages."""
        return self.checkpointer.cpu_s + self.restorer.cpu_s

    def _park(self, rids: tuple[str, ...]) -> None:
        """The newest step leaves these out."""
        self.parked = frozenset(rids)
        self.counters.parked_requests = len(self.parked)
