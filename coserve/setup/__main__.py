"""`python3 -m coserve.setup VERB`: everything from a clean checkout on, by the host's Python.

Verbs: service (.venv), dev (.venv with the tests' tools), engine (.venv-engine and the default
model), kernels (Triton for the kernels' tests), run (service, then `coserve up`), browser (Chromium
for the browser tests), pgbouncer (for the tests behind a pooler), proxies (nginx and Caddy, for the
tests behind them), conformance (official clients and validators for `make conformance`), helm (for
the checks of the chart), promtool (for the tests of the alerts), vllm (a real vLLM for the tests
before one).
"""

import sys
from pathlib import Path

from coserve.setup.host import why_unsupported

VERBS = (
    "service",
    "dev",
    "engine",
    "kernels",
    "run",
    "browser",
    "pgbouncer",
    "proxies",
    "conformance",
    "helm",
    "promtool",
    "vllm",
)


def main(argv):
    # type: (list[str]) -> None
    """Run one verb; exit status 2 on a wrong call or an unsupported host."""
    if len(argv) != 1 or argv[0] not in VERBS:
        sys.exit("usage: python3 -m coserve.setup " + "|".join(VERBS))
    why = why_unsupported()
    if why is not None:
        print(why, file=sys.stderr)
        sys.exit(2)
    # Imported only now: these need the Python that was just checked for.
    from coserve.setup.verbs import run_verb

    try:
        run_verb(argv[0], Path(__file__).resolve().parents[2])
    except KeyboardInterrupt:
        print("\nStopped. What is installed stays; the same command goes on from there.")
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
