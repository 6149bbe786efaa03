"""Log lines of the gateway: one per event, to standard error."""

from __future__ import annotations

import logging


def configure_logging(level: str) -> None:
    """Set up logging for a process that is a gateway."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    # Nothing that no format names is looked up (Python's logging HOWTO, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # The access log has a line of its own.
    logging.getLogger("uvicorn.access").disabled = True
