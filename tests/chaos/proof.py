"""After the last death: every line once, in one file, with its own answer, and none run again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.chaos.feeder import Feeder, Submitted
from tests.chaos.observer import Observer
from tests.fakes.journal import BEGUN, read_journal

END_LIMIT_S = 900.0
PARTS_LIMIT_S = 30.0

# Every change of a row's status, written by the database itself: for engines without a journal.
AUDIT = """
CREATE TABLE chaos_moves (row_id bigint, before text, after text);
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO chaos_moves VALUES (OLD.id, OLD.status, NEW.status); RETURN NULL; END $$;
CREATE TRIGGER chaos_note AFTER UPDATE OF status ON batch_rows
  FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION chaos_note();
"""


@dataclass
class Findings:
    """What the end of a run looks like.

    Attributes:
        num_missing: Lines in neither file.
        num_twice: Lines that are there more than once, in one file or over both.
        num_foreign: Lines that nobody asked for.
        num_wrong_answers: Lines with another line's answer.
        num_run_again: Calls (or leases) of a line that began after its result was written.
        num_calls: Calls that the engine took on; more than lines because unfinished ones are
            repeated. Of an engine without a journal: leases.
        num_unfinished_batches: Batches that did not complete.
        num_surplus_batches: Batches in the database that were never answered for.
        num_parts_down: Parts of the stack that were not ready again by then.
    """

    num_batches: int = 0
    num_lines: int = 0
    num_in_output: int = 0
    num_in_errors: int = 0
    num_missing: int = 0
    num_twice: int = 0
    num_foreign: int = 0
    num_wrong_answers: int = 0
    num_calls: int = 0
    num_run_again: int = 0
    num_unfinished_batches: int = 0
    num_surplus_batches: int = 0
    num_parts_down: int = 0

    @property
    def faults(self) -> dict[str, int]:
        """What must be zero and is not."""
        must_be_zero = (
            "num_missing", "num_twice", "num_foreign", "num_wrong_answers", "num_run_again",
            "num_unfinished_batches", "num_surplus_batches", "num_parts_down",
        )  # fmt: skip
        return {name: num for name, num in asdict(self).items() if name in must_be_zero and num}


async def wait_until_over(feeder: Feeder) -> None:
    """Until every batch has ended, or the limit has passed: then `prove` counts those left."""
    try:
        async with asyncio.timeout(END_LIMIT_S):
            for batch in feeder.batches:
                while (await feeder.get(f"/v1/batches/{batch.id}")).json()["status"] in (
                    "validating", "in_progress", "finalizing",
                ):  # fmt: skip
                    await asyncio.sleep(0.2)
    except TimeoutError:
        return


async def prove(feeders: Sequence[Feeder], observer: Observer, journal: Path | None) -> Findings:
    """Read everything back through the API, and hold the engine's own record against it."""
    findings = Findings(num_batches=sum(len(feeder.batches) for feeder in feeders))
    for feeder in feeders:
        for batch in feeder.batches:
            await _read_back(feeder, batch, findings)
    stored = await observer.ask(
        "SELECT count(*) FROM batches b JOIN projects p ON p.id = b.project_id"
        " WHERE p.name <> 'stranger'"
    )
    findings.num_surplus_batches = stored[0][0] - findings.num_batches
    findings.num_parts_down = len(await _parts_down(feeders[0]))
    if journal is not None:
        await _compare_with_journal(observer, journal, findings)
    else:
        await _compare_with_moves(observer, findings)
    return findings


async def _parts_down(feeder: Feeder) -> list[str]:
    until = asyncio.get_running_loop().time() + PARTS_LIMIT_S
    while (down := feeder.installation.parts_down()) and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.2)
    return down


async def _read_back(feeder: Feeder, batch: Submitted, findings: Findings) -> None:
    shown = (await feeder.get(f"/v1/batches/{batch.id}")).json()
    findings.num_lines += len(batch.lines)
    findings.num_unfinished_batches += shown["status"] != "completed"
    output = await _lines(feeder, shown["output_file_id"])
    errors = await _lines(feeder, shown["error_file_id"])
    findings.num_in_output += len(output)
    findings.num_in_errors += len(errors)
    times = Counter(line["custom_id"] for line in (*output, *errors))
    findings.num_missing += len(batch.lines.keys() - times.keys())
    findings.num_foreign += len(times.keys() - batch.lines.keys())
    findings.num_twice += sum(num > 1 for num in times.values())
    for line in output:
        wanted = batch.lines[line["custom_id"]].answer
        said = line["response"]["body"]["choices"][0]["message"]["content"]
        findings.num_wrong_answers += wanted is not None and said != wanted


async def _lines(feeder: Feeder, file_id: str | None) -> Sequence[Any]:
    if file_id is None:
        return []
    content = (await feeder.get(f"/v1/files/{file_id}/content")).content
    return [orjson.loads(line) for line in content.splitlines()]


async def _compare_with_journal(observer: Observer, journal: Path, findings: Findings) -> None:
    written = await observer.ask(
        "SELECT r.custom_id, extract(epoch FROM x.created_at)::float8"
        " FROM row_results x JOIN batch_rows r ON r.id = x.row_id"
    )
    written_at_s = {f"fake:text={custom_id}": at_s for custom_id, at_s in written}
    for entry in read_journal(journal):
        if entry.event == BEGUN:
            findings.num_calls += 1
            # An instant at which the write began: no call may begin after it.
            findings.num_run_again += entry.at_s > written_at_s.get(entry.prompt, float("inf"))


async def _compare_with_moves(observer: Observer, findings: Findings) -> None:
    found = await observer.ask(
        "SELECT count(*) FILTER (WHERE after = 'leased'),"
        " count(*) FILTER (WHERE before NOT IN ('pending', 'leased')) FROM chaos_moves"
    )
    findings.num_calls, findings.num_run_again = found[0]
