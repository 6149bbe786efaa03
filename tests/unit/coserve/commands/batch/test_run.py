"""A table of CSV becomes prompts, a time of day a window; what is wrong is told before anything."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from coserve.commands.batch.group import app
from coserve.commands.batch.run import completion_window_until, filled, read_table, write_table

NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def test_columns_are_filled_in_and_other_braces_are_not_formats() -> None:
    row = {"name": "{Ada}", "age": "36"}
    assert filled("{name} is {age}; {name}", row) == "{Ada} is 36; {Ada}"


@pytest.mark.parametrize(
    ("template", "said"), [("{city}", "{city}; the columns are name"), ("Hi", "one as {name}")]
)
def test_a_template_that_fits_no_column_is_refused(template: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        filled(template, {"name": "Ada"})


@pytest.mark.parametrize(("at", "window"), [("14:30", "2h"), ("06:00", "18h"), ("12:00", "24h")])
def test_a_deadline_is_whole_hours_from_now(at: str, window: str) -> None:
    assert completion_window_until(at, NOON) == window


@pytest.mark.parametrize("at", ["12:30", "noon", "25:00"])
def test_a_deadline_that_cannot_be_is_refused(at: str) -> None:
    with pytest.raises(typer.BadParameter):
        completion_window_until(at, NOON)


@pytest.mark.parametrize("text", ["", "a,b\n", "a,b\n1\n", "a,b\n1,2,3\n"])
def test_a_table_without_whole_rows_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    told = CliRunner().invoke(app, ["run", "{a}", str(path)])
    assert told.exit_code == 2
    assert "t.csv" in told.output


def test_values_of_several_lines_and_answers_come_back_as_they_were(tmp_path: Path) -> None:
    path, out = tmp_path / "t.csv", tmp_path / "out.csv"
    path.write_text('\ufeffname,note\nAda,"two\nlines, one comma"\nBob,x\n', encoding="utf-8")
    rows = read_table(path)
    write_table(out, rows, {0: {"answer": 'She said "yes"\n'}, 1: {"error": "too long"}})
    with out.open(newline="") as file:
        assert [*csv.DictReader(file)] == [
            {**rows[0], "answer": 'She said "yes"\n', "error": ""},
            {**rows[1], "answer": "", "error": "too long"},
        ]
