"""Decode batches built from requests, so that any subset of requests may run in any step.

SGLang splits and merges batch objects and keeps the truth in their tensors. Here the truth is in
the requests (KV length and request slot), and the batch is rebuilt whenever the set
of requests changes: parked requests cost nothing, and a resumed request needs no path of its own. A
batch whose requests did not change is used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.sampling.penaltylib import (
    BatchedFrequencyPenalizer,
    BatchedMinNewTokensPenalizer,
    BatchedPresencePenalizer,
    BatchedRepetitionPenalizer,
)
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

from engine_adapter.sglang.upload import upload
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler


class DecodeBatchBuilder:
    """Builds decode batches and keeps the last one."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Build batches for this scheduler."""
        self._scheduler = scheduler
        self._last: Any = None

    def forget(self) -> None:
        """Do not use the last batch again: its lengths or requests no longer hold."""
        self._last = None

    def prepare(self, reqs: list[Any]) -> Any:
        """A batch over exactly these requests, with KV slots for one more token each.

        Args:
            reqs: Requests whose prefill is complete, in batch order; none may be finished.

        Returns:
            A ScheduleBatch in decode mode, ready to run or to be mixed into a prefill batch.
        """
        batch = self._last
        if batch is None or batch.reqs != reqs:
            batch = self._build(reqs)
        _prepare(batch)
        self._last = batch
        return batch

    def _build(self, reqs: list[Any]) -> Any:
        s = self._scheduler
        batch = ScheduleBatch.init_new(
            reqs=list(reqs),
            req_to_token_pool=s.req_to_token_pool,
            token_to_kv_pool_allocator=s.token_to_kv_pool_allocator,
            tree_cache=s.tree_cache,
            model_config=s.model_config,
            enable_overlap=s.enable_overlap,
            spec_algorithm=s.spec_algorithm,
        )
        slots = [seam.slot(req) for req in reqs]
        # KV written or being written: also right while the last token is still on its way.
        lengths = seam.kv_lens(reqs)
        batch.req_pool_indices_cpu = torch.tensor(slots, dtype=torch.int64)
        batch.req_pool_indices = upload(batch.req_pool_indices_cpu, s.device)
        batch.seq_lens_cpu = torch.tensor(lengths, dtype=torch.int64)
        batch.seq_lens = upload(batch.seq_lens_cpu, s.device)
        batch.orig_seq_lens = batch.seq_lens.to(torch.int32)
        batch.seq_lens_sum = sum(lengths)
        batch.input_ids = None  # gathered from the relay buffer by request slot
        batch.multimodal_inputs = [req.multimodal_inputs for req in reqs]
        if batch.return_logprob:
            batch.top_logprobs_nums = [req.logprob.top_logprobs_num for req in reqs]
            batch.token_ids_logprobs = [req.logprob.token_ids_logprob for req in reqs]
        batch.sampling_info = SamplingBatchInfo.from_schedule_batch(
            batch, s.model_config.vocab_size
        )
        return batch


def mix(batch: Any, decode_batch: Any) -> None:
    """Add decoding requests to a prefill batch as one-token chunks.

    SGLang derives the context of these requests from the length of their output, which is right
    only for requests that ran in the previous step; a request that was parked has no token on its
    way.
    """
    num_chunks = len(batch.reqs)
    batch.mix_with_running(decode_batch)
    batch.decoding_reqs = decode_batch.reqs
    batch.prefix_lens[num_chunks:] = [length - 1 for length in seam.kv_lens(decode_batch.reqs)]


def _prepare(batch: Any) -> None:
    """Let SGLang give every request a KV slot; what it has said so far is told the penalties here.

    SGLang adds a request's newest processed token in every step, which with the overlap loop is the
    one before the newest: a request that skipped a step would be one token ahead of one that did
    not.
    """
    orchestrator = batch.sampling_info.penalizer_orchestrator
    required, orchestrator.is_required = bool(orchestrator.is_required), False
    try:
        batch.prepare_for_decode()
    finally:
        orchestrator.is_required = required
    tell_penalties(batch)


# --- Penalties: what each request has said, told to SGLang's penalizers by us.
#
# As in SGLang that is without the token on its way where there is an overlap loop. A prompt has
# said nothing, unless it is that of a request that is computed again.
#
#     rows of a batch     neutral | frequency 0.9 | neutral | repetition 1.3
#     told so far               -              17         -               42   tokens
#     each step                 -   its new tokens        -   its new tokens   one upload for all
#
# A batch that is used again is told what is new; one that is built anew is told all of it. Rows
# that ask for no penalty cost nothing, however many there are.


class ToldPenalties:
    """What the penalizers of one batch know.

    Attributes:
        rows: Batch positions of requests with a penalty.
        tokens: Answer tokens of each of them that were told.
        made: Tokens of each that were counted, the one on its way included.
    """

    def __init__(self, batch: Any) -> None:
        """Nothing is told."""
        self.rows = [i for i, req in enumerate(batch.reqs) if _asks(req.sampling_params)]
        self.tokens = [0] * len(self.rows)
        self.made = [0] * len(self.rows)

    def tell(self, batch: Any) -> None:
        """Tell what came since the last call."""
        reqs = [batch.reqs[i] for i in self.rows]
        rows: list[int] = []
        tokens: list[int] = []
        counts: list[int] = []
        for k, (req, length) in enumerate(zip(reqs, seam.kv_lens(reqs), strict=True)):
            made = max(0, length - len(req.origin_input_ids))
            known = max(0, made - 1) if batch.enable_overlap else made
            new = req.output_ids[self.tokens[k] : known]
            rows += [self.rows[k]] * len(new)
            tokens += new
            counts.append(made - self.made[k])
            self.tokens[k] += len(new)
            self.made[k] = made
        penalizers = batch.sampling_info.penalizer_orchestrator.penalizers.values()
        prepared = [one for one in penalizers if one.is_prepared()]
        if rows:
            at = upload([rows, tokens], batch.device)
            for penalizer in prepared:
                if (replay := _REPLAY.get(type(penalizer))) is not None:
                    replay(penalizer, *at)
        for penalizer in prepared:  # a count: no token has to be known
            if isinstance(penalizer, BatchedMinNewTokensPenalizer) and any(counts):
                at = upload([self.rows, counts], batch.device)
                penalizer.len_output_tokens[at[0], 0] += at[1].to(torch.int32)


def _asks(params: Any) -> bool:
    return (
        params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
        or params.repetition_penalty != 1.0
        or params.min_new_tokens > 0
    )


def tell_penalties(batch: Any) -> None:
    """Tell the penalizers of a batch what its requests have said, whatever steps they ran in."""
    orchestrator = batch.sampling_info.penalizer_orchestrator
    if not orchestrator.is_required:
        return
    told = getattr(orchestrator, _TOLD, None)
    if told is None:
        told = ToldPenalties(batch)
        setattr(orchestrator, _TOLD, told)
    told.tell(batch)


_TOLD = "coserve_told"


def _replay_frequency(penalizer: Any, rows: torch.Tensor, tokens: torch.Tensor) -> None:
    cumulated = penalizer.cumulated_frequency_penalties
    at = rows * cumulated.shape[1] + tokens
    # The same number is added for each time: sums in any order are the same, bit for bit.
    cumulated.view(-1).scatter_add_(0, at, penalizer.frequency_penalties[rows, 0])


def _replay_presence(penalizer: Any, rows: torch.Tensor, tokens: torch.Tensor) -> None:
    penalizer.cumulated_presence_penalties[rows, tokens] = penalizer.presence_penalties[rows, 0]


def _replay_repetition(penalizer: Any, rows: torch.Tensor, tokens: torch.Tensor) -> None:
    penalizer.cumulated_repetition_penalties[rows, tokens] = penalizer.repetition_penalties[rows, 0]


_REPLAY = {
    BatchedFrequencyPenalizer: _replay_frequency,
    BatchedPresencePenalizer: _replay_presence,
    BatchedRepetitionPenalizer: _replay_repetition,
}
