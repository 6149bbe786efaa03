"""`make bench-gateway`: what the gateway adds, beside a plain relay and other gateways.

One run, one fake engine with SGLang's chunks, servers in turns. The gateway runs as in production:
keys in a real Postgres, usage written, ids and finish reasons rewritten; once with a key without
limits, once with one whose limits are kept in a real Valkey.

`python -m bench.gateway_compare --before CHECKOUT` compares it with an earlier one: whole answers
alone, in one run, without the others.

Quoted in docs/benchmark-gateway.md.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from bench.gateway_compare.environments import LITELLM, NAMES, ROUTERS, install, version
from bench.gateway_compare.load import measure, whole_answers
from bench.gateway_compare.peers import ROUTER_PACKAGES, all_peers, own_peers
from bench.report import at_least, at_most, option_parser, report, scratch_folder

TARGETS = {
    "added_p50_ms": at_most(1.0),
    "cpu_us_per_chunk_unpaced": at_most(10.0),
    "litellm_cpu_ratio_per_request": at_least(20.0),
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
        "versions": {
            "litellm": version(LITELLM, "litellm"),
            **{name: version(ROUTERS, name.replace("_", "-")) for name in ROUTER_PACKAGES},
        },
        "by_server": figures,
    }


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    before = parser.parse_args().before
    for name in NAMES if before is None else ():
        install(name)
    with scratch_folder() as folder:
        if before is not None:
            with own_peers(folder, before.resolve()) as peers:
                figures = asyncio.run(whole_answers(peers))
            report("gateway_before_after", figures)
            return 0
        with all_peers(folder) as peers:
            figures = asyncio.run(measure(peers))
    return report("gateway_compare", compared(figures), TARGETS)


if __name__ == "__main__":
    sys.exit(main())
