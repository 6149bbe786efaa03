"""DistServe's engines: some compute prompts, the others answers (OSDI 2024, sections 3 and 4.3).

First come, first served. On a prefill engine whole prompts share a step up to its most tokens, and
every request ends with its first token. On a decode engine a request waits with its KV elsewhere
and is fetched once there is memory for it; all that were fetched get a token a step. Short of
memory, who came last is copied to the host. Both are vLLM's rules with swapping, on a pool of
engines each: see :mod:`lab.simulator.two_pools`. No single engine can run it.
"""

from __future__ import annotations

from lab.policies.vllm import VllmSwap


class DistServe(VllmSwap):
    """An engine of either pool."""

    name = "distserve"
    pools = 2
