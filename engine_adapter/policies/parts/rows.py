"""A snapshot's slot holders, split once by class and phase."""

from __future__ import annotations

from dataclasses import dataclass

from engine_adapter.core.ready import ReadyRows
from engine_adapter.core.request import Phase, RequestRow
from engine_adapter.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RowsByRole:
    """Slot holders by what a step could do with them.

    Attributes:
        online_decode: Online rows ready for their next token.
        online_partial: Online rows with prompt tokens left.
        online_waiting: Online rows without a slot.
        offline_decode: Flex and offline rows ready for their next token, most important first.
        offline_partial: Flex and offline rows with prompt tokens left, most important first.
        prefetching: Rows whose KV is coming back, online first.
        offline: All flex and offline slot holders, most important first.
    """

    online_decode: ReadyRows
    online_partial: list[RequestRow]
    online_waiting: list[RequestRow]
    offline_decode: ReadyRows
    offline_partial: list[RequestRow]
    prefetching: list[RequestRow]
    offline: list[RequestRow]

    @classmethod
    def of(cls, snapshot: Snapshot) -> RowsByRole:
        """Split the snapshot's rows."""
        online, offline = snapshot.online_running, snapshot.offline_running
        decode = (snapshot.online_ready, snapshot.offline_ready)
        if len(decode[0]) + len(decode[1]) == len(online) + len(offline):
            # The usual full step: there is nothing else to look for.
            return cls(decode[0], [], list(snapshot.online_waiting), decode[1], [], [], [*offline])
        return cls(
            online_decode=decode[0],
            online_partial=[row for row in online if row.phase is Phase.PREFILL],
            online_waiting=list(snapshot.online_waiting),
            offline_decode=decode[1],
            offline_partial=[row for row in offline if row.phase is Phase.PREFILL],
            prefetching=[row for row in (*online, *offline) if row.phase is Phase.PREFETCHING],
            offline=list(offline),
        )

    @property
    def has_online(self) -> bool:
        """Whether any online request is live."""
        return bool(
            self.online_decode
            or self.online_partial
            or self.online_waiting
            or (self.prefetching and self.prefetching[0].is_online)
        )

    @property
    def online(self) -> list[RequestRow]:
        """Online slot holders."""
        fetched = [row for row in self.prefetching if row.is_online]
        return self.online_decode.rows + self.online_partial + fetched

    def online_filling(self, *, fetches: bool) -> list[RequestRow]:
        """Online rows with prompt tokens left, oldest first.

        Args:
            fetches: The policy fetches rows whose KV is on the host: they are not among these.
        """
        waiting = [row for row in self.online_waiting if not (fetches and row.host_tokens)]
        filling = self.online_partial + waiting
        filling.sort(key=lambda row: row.sequence)
        return filling
