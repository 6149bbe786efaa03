"""`python -m tests.fuzz [--minutes M] [--seed N] [--request N] [--by-hand]`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys

from tests.fuzz.run import fuzz


def main() -> int:
    """Send requests for so long; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="after the start of the engine")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--request", type=int, default=None, help="only that one of the seed")
    parser.add_argument("--by-hand", action="store_true", help="those of tests/fuzz/by_hand.py")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the stack is to end with it
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    limit_s, by_hand = options.minutes * 60, options.by_hand
    findings = asyncio.run(fuzz(seed, limit_s, options.request, by_hand=by_hand))
    for finding in findings:
        print(f"\n{finding}")
        if finding.number is not None:
            print(
                f"  again: .venv/bin/python -m tests.fuzz --seed {seed} --request {finding.number}"
            )
    print(f"\n{len(findings)} findings" if findings else "nothing was found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
