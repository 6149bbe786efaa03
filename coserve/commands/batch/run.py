"""`coserve batch run TEMPLATE TABLE`: a prompt for each row of a CSV table, and its answers as one.

TABLE ── a request a row, `{column}` filled in ──► batch ── followed ──► TABLE.answers.csv
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from coserve.commands.batch.wait import follow
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import make_console
from service.clock import SystemClock
from store.states import BatchStatus

if TYPE_CHECKING:
    from coserve.commands.service_client import ServiceClient

CHAT: Final = "/v1/chat/completions"
ANSWER, ERROR = "answer", "error"
_PLACE: Final = re.compile(r"\{([^{}]+)\}")
_HOUR_S: Final = 3600


def run(  # noqa: PLR0913
    template: Annotated[
        str, typer.Argument(help="What to ask; {COLUMN} stands for the value of a row.")
    ],
    table: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="CSV; its first line names columns.")
    ],
    model: Annotated[str | None, typer.Option(help="By default the first that is served.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of each answer.")] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            help="HH:MM, when it must be over, an hour or more from now. By default 24 h."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="By default TABLE.answers.csv, beside TABLE.")
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Ask TEMPLATE for each row of TABLE, as one batch; write the table with its answers.

    Exits with 1 if a row has no answer.
    """
    console = make_console()
    rows = read_table(table)
    prompts = [filled(template, row) for row in rows]
    completion_window = "24h"
    if deadline is not None:
        completion_window = completion_window_until(deadline, SystemClock().now().astimezone())
    path = output or table.with_name(f"{table.stem}.answers.csv")
    with connected(base_url, api_key) as client:
        body: dict[str, Any] = {"model": client.model_to_ask(model)}
        if max_tokens is not None:
            body["max_completion_tokens"] = max_tokens
        with tempfile.TemporaryDirectory() as folder:
            asked = Path(folder) / f"{table.stem}.jsonl"
            asked.write_text("".join(lines(prompts, body, system)))
            uploaded = client.upload(asked)
        batch = client.create(
            uploaded["id"],
            endpoint=CHAT,
            completion_window=completion_window,
            metadata={},
            options={},
        )
        console.print(f"{batch['id']}: {len(rows):,} rows of {table.name}", highlight=False)
        batch = follow(client, batch, console)
        answers = _answers(client, batch)
    write_table(path, rows, answers)
    num_missing = sum(ANSWER not in answers.get(number, {}) for number in range(len(rows)))
    console.print(f"{path}: {len(rows) - num_missing:,} of {len(rows):,} answered", highlight=False)
    if num_missing or batch["status"] != BatchStatus.COMPLETED:
        raise typer.Exit(1)


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by their columns; ends with status 2 where it is none."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            rows = list(reader)
        except (csv.Error, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{path.name} is no CSV in UTF-8: {error}.") from None
    if not rows:
        raise typer.BadParameter(f"{path.name} has no rows below its line of columns.")
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise typer.BadParameter(
                f"{path.name}: row {number} has not as many values as columns."
            )
    return rows


def filled(template: str, row: dict[str, str]) -> str:
    """The prompt of one row; ends with status 2 where the template names no column."""
    names = _PLACE.findall(template)
    if unknown := next((name for name in names if name not in row), None):
        raise typer.BadParameter(
            f"The template names {{{unknown}}}; the columns are {', '.join(row)}."
        )
    if not names:
        raise typer.BadParameter(
            f"The template names no column: give one as {{{next(iter(row))}}}."
        )
    return _PLACE.sub(lambda found: row[found[1]], template)


def lines(prompts: list[str], body: dict[str, Any], system: str | None) -> Iterator[str]:
    """A request for each row of the table, as JSON; its number is its `custom_id`."""
    first = [] if system is None else [{"role": "system", "content": system}]
    for number, prompt in enumerate(prompts):
        whole = {**body, "messages": [*first, {"role": "user", "content": prompt}]}
        line = {"custom_id": str(number), "method": "POST", "url": CHAT, "body": whole}
        yield json.dumps(line) + "\n"


def completion_window_until(deadline: str, now: datetime) -> str:
    """The whole hours until a time of day; ends with status 2 where there is none."""
    try:
        at = datetime.combine(now.date(), time.fromisoformat(deadline), now.tzinfo)
    except ValueError:
        raise typer.BadParameter(f"{deadline!r} is no time of day, such as 06:00.") from None
    if at <= now:
        at += timedelta(days=1)
    hours = int((at - now).total_seconds() // _HOUR_S)
    if not hours:
        raise typer.BadParameter("The deadline must be an hour or more from now.")
    return f"{hours}h"


def write_table(path: Path, rows: list[dict[str, str]], answers: dict[int, dict[str, str]]) -> None:
    """The rows with a column for the answer, and one for what went wrong."""
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = [*rows[0], *(name for name in (ANSWER, ERROR) if name not in rows[0])]
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for number, row in enumerate(rows):
            writer.writerow({**row, ANSWER: "", ERROR: "", **answers.get(number, {})})


def _answers(client: ServiceClient, batch: dict[str, Any]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.jsonl"
        for file_id in (batch["output_file_id"], batch["error_file_id"]):
            if file_id is None:
                continue
            client.download(file_id, path)
            for line in path.read_text().split("\n"):
                if line:
                    result = json.loads(line)
                    found[int(result["custom_id"])] = _outcome(result)
    return found


def _outcome(result: dict[str, Any]) -> dict[str, str]:
    response = result["response"]
    body = {} if response is None else response["body"]
    if "choices" in body:
        return {ANSWER: body["choices"][0]["message"]["content"] or ""}
    error = result["error"] or body.get("error") or {}
    return {ERROR: str(error.get("message", "no answer"))}
