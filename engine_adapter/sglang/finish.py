"""Why an answer ends: a stop text, a stop token or an end is looked for before the length.

SGLang looks at the length first. An answer whose last allowed token ends it, or completes a stop
text, would say that it was cut, and its stop text would stay in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

UPDATE: Final = "sglang.srt.managers.schedule_batch.Req.update_finish_state"


def stop_first(update: Callable[..., None], req: Any, *args: Any, **named: Any) -> None:
    """Around SGLang's look at a request: at its last token it looks once as if there was room."""
    params = req.sampling_params
    limit = params.max_new_tokens
    if len(req.output_ids) == limit and not req.finished() and not req.to_finish:
        params.max_new_tokens = limit + 1
        try:
            update(req, *args, **named)
        finally:
            params.max_new_tokens = limit
    update(req, *args, **named)
