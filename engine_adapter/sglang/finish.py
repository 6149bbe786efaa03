"""Why an answer ends: a stop text, a stop token or an end is looked for before the length.

SGLang looks at the length first. An answer whose last allowed token ends it, or completes a stop
text, would say that it was cut, and its stop text would stay in it.

A look that raises ends that request with an error, and nothing else: it changes nothing but how the
request ends, and comes before the request's KV is given back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from api.engine_errors import FAILED_ALONE

logger = logging.getLogger(__name__)

UPDATE: Final = "sglang.srt.managers.schedule_batch.Req.update_finish_state"


def stop_first(update: Callable[..., None], req: Any, *args: Any, **named: Any) -> None:
    """Around SGLang's look at a request: one that raises is the request's own failure."""
    try:
        _end_before_length(update, req, *args, **named)
    except Exception as error:
        from sglang.srt.managers.schedule_batch import FINISH_ABORT

        logger.error("coserve: the end of request %s cannot be told", req.rid, exc_info=error)
        req.to_finish = FINISH_ABORT(FAILED_ALONE, HTTPStatus.BAD_REQUEST, "BadRequestError")
        update(req, *args, **named)


def _end_before_length(update: Callable[..., None], req: Any, *args: Any, **named: Any) -> None:
    """At the last token it is looked once as if there was room for more."""
    params = req.sampling_params
    limit = params.max_new_tokens
    if len(req.output_ids) == limit and not req.finished() and not req.to_finish:
        params.max_new_tokens = limit + 1
        try:
            update(req, *args, **named)
        finally:
            params.max_new_tokens = limit
    update(req, *args, **named)
