"""Seeds of single requests: the same request with a seed gives the same answer beside any others.

Stock SGLang 0.5.16 looks at a request's seed only where the whole engine samples
deterministically, by a kernel for GPUs. With torch's own sampling (any CPU engine) a seeded row is
drawn here, from its own probabilities by a number made of its seed and its place in the sequence
alone. So neither neighbours nor a preemption turn it; rows without a seed are drawn as before.
Other sampling backends take no seeds, and the service refuses them there.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Callable
from typing import Any, Final

NO_SEED: Final = -(1 << 63)
BACKEND: Final = "pytorch"


def install() -> None:
    """Have SGLang's sampler honour seeds in this process."""
    from sglang.srt.layers.sampler import Sampler
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    made: Any = SamplingBatchInfo
    made.from_schedule_batch = classmethod(_with_seeds(SamplingBatchInfo.from_schedule_batch))
    sampler: Any = Sampler
    sampler._sample_from_probs = _seeded_rows_apart(sampler._sample_from_probs)


def _with_seeds(make: Callable[..., Any]) -> Callable[..., Any]:
    def from_schedule_batch(_: type, batch: Any, vocab_size: int) -> Any:
        import torch
        from sglang.srt.runtime_context import get_server_args

        info = make(batch, vocab_size)
        if info.sampling_seed is None and get_server_args().sampling_backend == BACKEND:
            # Merged batches need a value for each row, so there is one for those without a seed.
            seeds = [_seed_of(req.sampling_params.sampling_seed) for req in batch.reqs]
            info.sampling_seed = torch.tensor(seeds, dtype=torch.int64, device=batch.device)
        return info

    return from_schedule_batch


def _seed_of(seed: int | None) -> int:
    return NO_SEED if seed is None else max(seed, NO_SEED + 1)


def _seeded_rows_apart(sample: Callable[..., Any]) -> Callable[..., Any]:
    """`_sample_from_probs`, by which every row is drawn, and then those with a seed by it."""

    @functools.wraps(sample)
    def wrapped(self: Any, probs: Any, info: Any, positions: Any, simple: bool) -> Any:
        from sglang.srt.runtime_context import get_server_args

        seeds = info.sampling_seed
        if seeds is None or get_server_args().enable_deterministic_inference:
            return sample(self, probs, info, positions, simple)
        rows = (seeds != NO_SEED).nonzero().view(-1).tolist()
        chosen = {row: _chosen(probs[row], info, row, int(positions[row])) for row in rows}
        info.sampling_seed = None
        try:
            ids = sample(self, probs, info, positions, simple)
        finally:
            info.sampling_seed = seeds
        for row, token in chosen.items():
            ids[row] = token
        return ids

    return wrapped


def _chosen(probs: Any, info: Any, row: int, position: int) -> int:
    """The token of one row: the one whose share of [0, 1) holds its number.

    Which filters the row asks for decides the order of the shares, never those of other rows.
    """
    import torch

    top_k, top_p = int(info.top_ks[row]), float(info.top_ps[row])
    min_p = float(info.min_ps[row])
    tokens = None
    shares = probs.double()
    if top_k < len(probs) or top_p < 1 or min_p > 0:
        shares, tokens = shares.sort(descending=True, stable=True)
        before = shares.cumsum(0) - shares
        out = (before > top_p) | (shares < shares[0] * min_p)
        out[top_k:] = True
        shares = shares.masked_fill(out, 0.0)
    ends = shares.cumsum(0)
    at = share(int(info.sampling_seed[row]), position) * ends[-1]
    index = int(torch.searchsorted(ends, at, right=True))
    return index if tokens is None else int(tokens[index])


def share(seed: int, position: int) -> float:
    """A number in [0, 1), as if by chance."""
    digest = hashlib.blake2b(struct.pack("<qq", seed, position), digest_size=8).digest()
    return int.from_bytes(digest, "little") / (1 << 64) * (1 - 1e-12)
