"""The steps a profile is measured from: enough to tell the coefficients apart."""

from __future__ import annotations

from dataclasses import dataclass

# What is beyond an engine's chunk size, slots or pool is left out: an accelerator's chunks and
# batches are ten times as large as a processor's.
CHUNK_TOKENS = (8, 16, 48, 128, 256, 512, 1024, 2048, 4096, 8192)
CHUNK_CONTEXT = (0, 256, 1024)
DECODE_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DECODE_CONTEXT = (64, 512, 1200)
MIXED_ROWS = (1, 4, 12, 64)
MIXED_CONTEXT = (128, 1024)
MIXED_CHUNKS = ((8, 512), (16, 0), (64, 512), (192, 0), (384, 256), (1024, 0), (4096, 512))
# A few steps over long contexts: what a fit says of them otherwise follows from how the shorter
# ones bend, and caches bend them.
LONG_CONTEXT = 4000
LONG_DECODE_ROWS = (1, 2, 4)
LONG_CHUNKS = (8, 48, 128)
LONG_MIXED = ((LONG_CONTEXT, (16, 0)), (LONG_CONTEXT, (64, 512)), (128, (64, LONG_CONTEXT)))


@dataclass(frozen=True, slots=True)
class Cell:
    """One step of the grid.

    Attributes:
        decode: Context of every decoding request.
        chunks: ``(num_tokens, context)`` of every prompt chunk.
    """

    decode: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        """KV tokens the cell needs."""
        return sum(c + 1 for c in self.decode) + sum(p + c for p, c in self.chunks)

    @property
    def num_rows(self) -> int:
        """Request slots the cell needs."""
        return len(self.decode) + len(self.chunks)


def make_grid(chunk_tokens: int, pool_tokens: int, slots: int, context_tokens: int) -> list[Cell]:
    """The cells an engine can hold.

    Args:
        chunk_tokens: Most prompt tokens of one step.
        pool_tokens: KV tokens. Half of them bound a cell: offline requests may hold the rest while
            the grid is measured.
        slots: Request slots.
        context_tokens: Longest sequence of the model.
    """
    room = pool_tokens // 2
    chunks = sorted({min(p, chunk_tokens) for p in CHUNK_TOKENS})
    cells = [Cell(chunks=((p, c),)) for p in chunks for c in CHUNK_CONTEXT]
    cells += [Cell(chunks=((p // 2, 0), (p - p // 2, 256))) for p in chunks if p >= 48]
    cells += [
        Cell(decode=(c,) * n) for n in DECODE_ROWS for c in _contexts(DECODE_CONTEXT, n, room)
    ]
    cells += [
        Cell(decode=(c,) * n, chunks=((p, start),))
        for n in MIXED_ROWS
        for p, start in MIXED_CHUNKS
        for c in _contexts(MIXED_CONTEXT, n, room - p - start)
        if p <= chunk_tokens
    ]
    cells += [Cell(decode=(LONG_CONTEXT,) * n) for n in LONG_DECODE_ROWS]
    cells += [Cell(chunks=((p, LONG_CONTEXT),)) for p in LONG_CHUNKS if p <= chunk_tokens]
    cells += [Cell(decode=(c,), chunks=(chunk,)) for c, chunk in LONG_MIXED]
    return [
        cell
        for cell in cells
        if cell.num_tokens <= room
        and cell.num_rows <= slots
        and all(p + c < context_tokens for p, c in cell.chunks)
        and all(c < context_tokens for c in cell.decode)
    ]


def _contexts(wanted: tuple[int, ...], num_rows: int, room: int) -> list[int]:
    """The wanted contexts, in a small pool as long as so many rows can have, each once."""
    longest = room // num_rows - 1
    return sorted({min(context, longest) for context in wanted if longest > 0})
