"""`make bench-gateway`: what the gateway adds, beside a plain relay and beside LiteLLM's proxy.

One run, one fake engine with SGLang's chunks, servers in turns. The gateway runs as in production:
keys in a real Postgres, usage written, ids and finish reasons rewritten; once with a key without
limits, once with one whose limits are kept in a real Valkey.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.gateway_compare.litellm_env import install, version
from bench.gateway_compare.load import measure
from bench.gateway_compare.peers import all_peers
from bench.report import report

TARGETS = {
    "added_p50_ms": (1.0, False),
    "cpu_us_per_chunk_unpaced": (10.0, False),
    "litellm_cpu_ratio_per_request": (20.0, True),
}


def compared(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures that have targets, those to read beside them, and all by server."""
    ours, relay, litellm = (figures[name] for name in ("gateway", "plain_relay", "litellm"))

    def ratio(figure: str) -> float:
        return round(float(litellm[figure] / ours[figure]), 1)

    return {
        "added_p50_ms": ours["added_p50_ms"],
        "added_p50_ms_with_limits": figures["gateway_with_limits"]["added_p50_ms"],
        "added_p50_ms_plain_relay": relay["added_p50_ms"],
        "added_p50_ms_litellm": litellm["added_p50_ms"],
        "cpu_us_per_chunk_unpaced": ours["cpu_us_per_chunk_unpaced"],
        "cpu_us_per_chunk_paced": ours["cpu_us_per_chunk_paced"],
        "cpu_us_per_request": ours["cpu_us_per_request"],
        "litellm_cpu_ratio_per_request": ratio("cpu_us_per_request"),
        "litellm_cpu_ratio_per_chunk_unpaced": ratio("cpu_us_per_chunk_unpaced"),
        "litellm_cpu_ratio_per_chunk_paced": ratio("cpu_us_per_chunk_paced"),
        "litellm_version": version(),
        "by_server": figures,
    }


def main() -> int:
    """Start everything, measure, report."""
    install()
    folder = Path(tempfile.mkdtemp(prefix="csb-"))
    try:
        with all_peers(folder) as peers:
            figures = asyncio.run(measure(peers))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if report("gateway_compare", compared(figures), TARGETS) else 1


if __name__ == "__main__":
    sys.exit(main())
