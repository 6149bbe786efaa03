"""Log lines of the gateway: one per event, to standard error (`service/log_lines.py`)."""

from __future__ import annotations

import logging

from service import log_lines


def configure_logging(level: str, form: str) -> None:
    """Set up logging for a process that is a gateway."""
    log_lines.configure("gateway", form, level.upper())
    # Nothing that no format names is looked up (Python's logging HOWTO, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # The access log has a line of its own.
    logging.getLogger("uvicorn.access").disabled = True
