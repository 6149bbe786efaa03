"""A whole batch input file, judged while it streams by (rows B-13 to B-26).

Pure: the validation stage and `coserve batch check` feed it the same chunks and get the same
report. Memory is bounded by the limits: one line, one short record per row, and
`MAX_REPORTED_FAULTS` faults of
`MAX_REPORTED_BYTES` together.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from api.model_errors import unknown_model, unsuited_model
from api.numbers import ModelSizes
from batch.intake.line import MAX_LINE_BYTES, ParsedLine, parse_line
from batch.intake.line_error import LineError
from batch.intake.quote import Contents
from engine_adapter.client.base import EMBEDDINGS_PATH
from engine_adapter.client.estimate import text_tokens

# --- Cuts a stream of chunks into physical lines, in memory bounded by one line.
#
# A line ends with LF; a CR before it belongs to the line end. A byte order mark at the very start
# of the file belongs to no line. Bytes of a line over the limit are counted and dropped.


_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r"


@dataclass(frozen=True, slots=True)
class PhysicalLine:
    """One line of a file.

    Attributes:
        line_no: From 1.
        offset: Where `data` begins in the file, bytes.
        data: The line without line end, BOM and white space around it; empty for a blank line.
        too_long: The line is over the limit and `data` is empty.
    """

    line_no: int
    offset: int
    data: bytes
    too_long: bool = False


class LineSplitter:
    """Feed it chunks in order, then `finish`; both yield the lines that became complete.

    Invariant: `_start` is the file offset of the first byte of the line being gathered, and
    `_pending` holds its bytes so far, unless there are more than the limit.
    """

    def __init__(self, *, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._start = 0
        self._line_no = 1

    def feed(self, chunk: bytes) -> Iterator[PhysicalLine]:
        """Lines that end inside `chunk`."""
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            self._gather(chunk[begin:end])
            yield self._take(line_end_bytes=1)
            begin = end + 1
        self._gather(chunk[begin:])

    def finish(self) -> Iterator[PhysicalLine]:
        """The last line, where the file does not end with a line end."""
        if self._pending_bytes:
            yield self._take(line_end_bytes=0)

    def _gather(self, piece: bytes) -> None:
        if not piece:
            return
        self._pending_bytes += len(piece)
        if self._pending_bytes > self._max_line_bytes:
            self._pending.clear()
        else:
            self._pending.append(piece)

    def _take(self, *, line_end_bytes: int) -> PhysicalLine:
        raw = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        offset = self._start
        if self._line_no == 1 and raw.startswith(_BOM):
            raw = raw[len(_BOM) :]
            offset += len(_BOM)
        data = raw.lstrip(_BLANK)
        offset += len(raw) - len(data)
        line = PhysicalLine(
            self._line_no,
            offset,
            data.rstrip(_BLANK),
            too_long=self._pending_bytes > self._max_line_bytes,
        )
        self._start += self._pending_bytes + line_end_bytes
        self._line_no += 1
        self._pending.clear()
        self._pending_bytes = 0
        return line


MAX_ROWS: Final = 50_000
MAX_EMBEDDING_INPUTS: Final = 50_000
MAX_FILE_BYTES: Final = 200 * 1024 * 1024
MAX_REPORTED_FAULTS: Final = 1000
MAX_REPORTED_BYTES: Final = 128 * 1024
"""Of all reported faults together: a thousand of the usual ones fit."""


@dataclass(frozen=True)
class CheckLimits:
    """What a file may hold; the defaults are the documented limits."""

    max_rows: int = MAX_ROWS
    max_embedding_inputs: int = MAX_EMBEDDING_INPUTS
    max_file_bytes: int = MAX_FILE_BYTES
    max_line_bytes: int = MAX_LINE_BYTES
    max_reported_faults: int = MAX_REPORTED_FAULTS


DOCUMENTED_LIMITS: Final = CheckLimits()

_PREFIX_DEPTHS: Final = (256, 1024, 4096)
_SHARED_DEPTHS: Final = tuple(64 << step for step in range(7))
_BITS_PER_DEPTH: Final = 16  # MAX_ROWS < 2**16, so three depths fill 48 bits of a bigint


@dataclass(frozen=True, slots=True)
class CheckedRow:
    """One line that is to become a row; see `store.models.BatchRow` for the columns."""

    line_no: int
    custom_id: str
    offset_bytes: int
    length_bytes: int
    prefix_hash: int
    num_tokens: int
    same_as: str | None = None
    digest: bytes | None = None


class CheckedRows:
    """The rows of a valid file in file order, held compactly (some 150 bytes each)."""

    def __init__(self) -> None:
        self._line_nos = array("l")
        self._offsets = array("q")
        self._lengths = array("l")
        self._prefixes = array("q")
        self._tokens = array("l")
        # Insertion order is row order; the value is the line that used the id first.
        self._custom_ids: dict[str, int] = {}
        self._firsts: dict[bytes, str] = {}
        self._same_as: dict[int, str] = {}  # by line_no, of lines that repeat another
        self._beginnings: set[int] = set()
        self._num_shared_tokens = 0
        self._limits: Counter[int | None] = Counter()

    def first_use(self, custom_id: str, line_no: int) -> int:
        """The line on which an id was used first; `line_no` itself if it is new."""
        return self._custom_ids.setdefault(custom_id, line_no)

    def append(self, line: ParsedLine, prefix_hash: int) -> None:
        """Keep a faultless line whose `custom_id` was just used for the first time."""
        self._line_nos.append(line.line_no)
        self._offsets.append(line.offset)
        self._lengths.append(line.length)
        self._prefixes.append(prefix_hash)
        self._tokens.append(line.num_tokens)
        if line.digest is not None and line.custom_id is not None:
            first = self._firsts.setdefault(line.digest, line.custom_id)
            if first != line.custom_id:
                self._same_as[line.line_no] = first
        self._limits[line.answer_limit] += 1
        self._num_shared_tokens += self._shared_tokens(line)

    @property
    def num_repeats(self) -> int:
        """How many of them ask what a row before them asks."""
        return len(self._same_as)

    def contents(self, num_bytes: int) -> Contents:
        """What a quote is made of."""
        return Contents(
            len(self),
            len(self) - self.num_repeats,
            num_bytes,
            self.num_tokens,
            self._num_shared_tokens,
            list(self._limits.items()),
        )

    def _shared_tokens(self, line: ParsedLine) -> int:
        """About how many tokens its prompt begins with as one before it did, at least."""
        if line.line_no in self._same_as:
            return line.num_tokens
        shared = ""
        for depth in _SHARED_DEPTHS:
            beginning = line.prefix[:depth]
            known = hash(beginning)
            if known in self._beginnings:
                shared = beginning
            self._beginnings.add(known)
            if len(beginning) < depth:
                break
        return min(text_tokens(shared), line.num_tokens)

    @property
    def num_tokens(self) -> int:
        """Estimated tokens of all their prompts."""
        return sum(self._tokens)

    def __len__(self) -> int:
        return len(self._line_nos)

    def __iter__(self) -> Iterator[CheckedRow]:
        digests = {custom_id: digest for digest, custom_id in self._firsts.items()}
        columns = zip(
            self._line_nos,
            self._custom_ids,
            self._offsets,
            self._lengths,
            self._prefixes,
            self._tokens,
            strict=True,
        )
        for line_no, custom_id, offset, length, prefix, num_tokens in columns:
            yield CheckedRow(
                line_no,
                custom_id,
                offset,
                length,
                prefix,
                num_tokens,
                self._same_as.get(line_no),
                digests.get(custom_id),
            )


@dataclass
class CheckReport:
    """What a check found.

    Attributes:
        max_reported_faults: How many faults are kept.
        num_lines: Lines that are not blank.
        num_bytes: Size of the file.
        model: The model of the first line that names one.
        faults: The first of them, then one `too_many_errors` if there are more.
        num_faults: All faults, reported or not.
        rows: Meaningful only if there are no faults.
        room_bytes: What further faults may take.
    """

    max_reported_faults: int = MAX_REPORTED_FAULTS
    num_lines: int = 0
    num_bytes: int = 0
    model: str | None = None
    faults: list[LineError] = field(default_factory=list)
    num_faults: int = 0
    rows: CheckedRows = field(default_factory=CheckedRows)
    room_bytes: int = MAX_REPORTED_BYTES

    @property
    def ok(self) -> bool:
        """Whether every line can run."""
        return not self.num_faults

    def add(self, fault: LineError) -> None:
        """Count a fault, and keep it while there is room."""
        self.num_faults += 1
        if len(self.faults) < self.max_reported_faults and self.room_bytes > 0:
            self.faults.append(fault)
            self.room_bytes -= fault.num_bytes


class FileCheck:
    """Feed it a file's chunks in order, then `finish` once for the report.

    Args:
        endpoint: What every line's `url` must be.
        served_models: The models there are, and whether a line may name them here; None where that
                is not known.
        sizes: What engines said of their models, as far as it is known.
        limits: What the file may hold.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        served_models: Mapping[str, bool] | None = None,
        sizes: Mapping[str, ModelSizes] = {},
        limits: CheckLimits = DOCUMENTED_LIMITS,
    ) -> None:
        self._limits = limits
        self._endpoint = endpoint
        self._served_models = served_models
        self._sizes = sizes
        self._splitter = LineSplitter(max_line_bytes=limits.max_line_bytes)
        self._report = CheckReport(limits.max_reported_faults)
        self._model_line = 0
        self._num_inputs = 0
        self._unknown_models: set[str] = set()
        self._groups: dict[int, int] = {}

    def anew(self) -> FileCheck:
        """The same check of another file."""
        return FileCheck(
            self._endpoint,
            served_models=self._served_models,
            sizes=self._sizes,
            limits=self._limits,
        )

    def feed(self, chunk: bytes) -> None:
        """Judge the lines that end inside this chunk."""
        self._report.num_bytes += len(chunk)
        for line in self._splitter.feed(chunk):
            self._judge(line)

    def finish(self) -> CheckReport:
        """Judge the last line and the file as a whole."""
        for line in self._splitter.finish():
            self._judge(line)
        report, limits = self._report, self._limits
        if report.num_bytes > limits.max_file_bytes:
            report.add(
                LineError(
                    "file_too_large",
                    f"The file has {report.num_bytes:,} bytes; "
                    f"the limit is {limits.max_file_bytes:,}.",
                )
            )
        if report.num_lines == 0:
            report.add(LineError("empty_file", "The file has no requests."))
        elif report.num_lines > limits.max_rows:
            report.add(
                LineError(
                    "too_many_lines",
                    f"The file has {report.num_lines:,} requests; "
                    f"the limit is {limits.max_rows:,}. Lines beyond it were not checked.",
                )
            )
        elif self._num_inputs > limits.max_embedding_inputs:
            report.add(
                LineError(
                    "too_many_inputs",
                    f"The file has {self._num_inputs:,} embedding inputs; "
                    f"the limit is {limits.max_embedding_inputs:,}.",
                )
            )
        num_unlisted = report.num_faults - len(report.faults)
        if num_unlisted:
            report.faults.append(
                LineError("too_many_errors", f"{num_unlisted:,} more errors are not listed.")
            )
        return report

    def _judge(self, line: PhysicalLine) -> None:
        report = self._report
        if line.too_long:
            report.num_lines += 1
            report.add(
                LineError(
                    "line_too_long",
                    f"This line has more than {self._limits.max_line_bytes:,} bytes.",
                    line=line.line_no,
                )
            )
            return
        if not line.data:
            return
        report.num_lines += 1
        if report.num_lines > self._limits.max_rows:
            return
        parsed = parse_line(
            line.data,
            line_no=line.line_no,
            offset=line.offset,
            endpoint=self._endpoint,
            sizes=self._sizes,
        )
        for fault in parsed.faults:
            report.add(fault)
        self._num_inputs += parsed.num_inputs
        self._compare(parsed)

    def _compare(self, line: ParsedLine) -> None:
        """Judge a line against the lines before it, and keep it while the file is faultless."""
        report = self._report
        if line.model is not None:
            self._check_model(line.model, line.line_no)
        if line.custom_id is None:
            return
        first_line_no = report.rows.first_use(line.custom_id, line.line_no)
        if first_line_no != line.line_no:
            report.add(
                LineError(
                    "duplicate_custom_id",
                    f"The custom_id is the same as that of line {first_line_no}.",
                    "custom_id",
                    line.line_no,
                )
            )
        elif not report.num_faults:
            report.rows.append(line, self._group(line.prefix))

    def _check_model(self, model: str, line_no: int) -> None:
        report = self._report
        if report.model is None:
            report.model = model
            self._model_line = line_no
        elif model != report.model:
            report.add(
                LineError(
                    "mismatched_model",
                    f"The model differs from that of line {self._model_line}: "
                    "all requests of a batch must name one model.",
                    "body.model",
                    line_no,
                )
            )
        if self._served_models is None or self._served_models.get(model):
            return
        if model not in self._unknown_models:
            # Once per model: the line that names it first stands for all that follow.
            self._unknown_models.add(model)
            embeds = self._endpoint != EMBEDDINGS_PATH
            known = model in self._served_models
            error = unsuited_model(model, embeds=embeds) if known else unknown_model(model)
            report.add(LineError(str(error.code), error.message, "body.model", line_no))

    def _group(self, prefix: str) -> int:
        """A number that sorts lines which begin alike next to each other.

        For each depth, the ordinal of the first line with the same beginning: lines that share
        a long beginning are neighbours inside the group of those that share a short one, groups
        come in the order of their first lines, and lines that share nothing stay in file order.
        The hash is of this process only; a collision merges two groups and does no harm.
        """
        ordinal = len(self._report.rows) + 1
        packed = 0
        for depth in _PREFIX_DEPTHS:
            first = self._groups.setdefault(hash((depth, prefix[:depth])), ordinal)
            packed = packed << _BITS_PER_DEPTH | first
        return packed
