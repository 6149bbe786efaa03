"""How many host pages one step may copy, and how long its pass then waits for the link.

Copies go through two staging buffers on the device. What is more than they hold makes the stream of
the passes wait for the link, before the pass and where no safepoint can end it::

    link        | window 0 | window 1 | window 2 | window 3 |
    passes           gather 2 waits for 0 .. gather 3 .. | the step's pass

So copies are bounded in every step: beside online requests by a small part of the time between
their tokens, and without any by a part of what a first token may take, since a prompt that arrives
meanwhile waits for all of it.
"""

from __future__ import annotations

from engine_adapter.scheduling.targets import Slo

SHARE_OF_TBT = 0.05
SHARE_OF_TTFT = 0.1
# The paper's 37 GB/s, rounded up.
LINK_BYTES_PER_S = 40e9


def copy_pages(slo: Slo, *, beside_online: bool, page_bytes: int, page_cpu_s: float) -> int:
    """Host pages one step may copy, at least one.

    Args:
        slo: Targets of the online class.
        beside_online: Whether online requests run.
        page_bytes: Size of a host page.
        page_cpu_s: What a page has cost the host so far, where the host copies.
    """
    wait_s = SHARE_OF_TBT * slo.tbt_s if beside_online else SHARE_OF_TTFT * slo.ttft_s
    return max(1, int(wait_s / max(page_cpu_s, max(1, page_bytes) / LINK_BYTES_PER_S)))


def link_wait_s(num_pages: int, page_bytes: int, staged_bytes: int) -> float:
    """How long a pass waits for the copies of its step.

    Args:
        num_pages: Host pages copied, in both directions.
        page_bytes: Size of one.
        staged_bytes: What the staging buffers hold.
    """
    return max(0, num_pages * page_bytes - staged_bytes) / LINK_BYTES_PER_S
