"""SGLang's output streamer, able to leave out more than one request."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer


class RowStreamer(SchedulerOutputStreamer):
    """Skips every row whose chunk was not its last one.

    SGLang has one half-prefilled request at a time and its streamer can skip one; co-serving has
    several.
    """

    skipped: frozenset[int] = frozenset()

    def stream_output(
        self, reqs: list[Any], return_logprob: bool, skip_req: Any | None = None
    ) -> None:
        """Stream the requests that are not skipped."""
        shown = [req for req in reqs if id(req) not in self.skipped]
        super().stream_output(shown, return_logprob, skip_req)
