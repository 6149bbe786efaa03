"""What users, operators and programs see of the product, as one file each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import typer.main
from prometheus_client import CollectorRegistry
from pydantic_settings import BaseSettings
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable
from typer.testing import CliRunner

from tests.contract_rows import claims
from tests.fixtures.oracles import FOLDER, Oracle, difference

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).parents[2]


def test_openapi(oracle: Oracle) -> None:
    from gateway.http.app import create_app
    from gateway.settings import GatewaySettings

    told = create_app(GatewaySettings()).openapi()
    told["info"].pop("version")
    oracle("openapi.json", json.dumps(told, indent=1, sort_keys=True))


def _families(registry: CollectorRegistry) -> Iterator[str]:
    for collector in registry._collector_to_names:
        for family in collector.collect():
            labels = getattr(family, "_labelnames", ()) or getattr(collector, "_labelnames", ())
            if not family.name.startswith("process_"):  # the library's, another set per system
                yield f"{family.name} {family.type} {{{', '.join(labels)}}}  {family.documentation}"


def test_metrics(oracle: Oracle) -> None:
    """The gateway's own, and what it reads of batches, workers, webhooks, host and engines."""
    from gateway.observability.metrics import Metrics

    metrics = Metrics()
    found = [*_families(metrics.registry), *_families(metrics.seen_by_all)]
    assert len(found) > 50
    oracle("metrics.txt", "\n".join(sorted(found)))


def _plain(value: object) -> str:
    """Without where this machine has it."""
    return repr(value).replace(str(ROOT), ".").replace(str(Path.home()), "~")


def _service(kind: type[BaseSettings]) -> Iterator[str]:
    from service.secret_files import env_name

    for name, field in sorted(kind.model_fields.items()):
        default = field.default if field.default_factory is None else "made at start"
        kinds = getattr(field.annotation, "__name__", str(field.annotation))
        if "[" in str(field.annotation) or "|" in str(field.annotation):
            kinds = str(field.annotation).replace("typing.", "")
        limits = "".join(f" {one!r}" for one in field.metadata)
        yield f"  {env_name(kind, name, field)}: {kinds} = {_plain(default)}{limits}"


def _engine() -> Iterator[str]:
    from engine_adapter.runtime_settings import DECLARED, RuntimeSettings

    for field in fields(RuntimeSettings):
        assert field.default is not MISSING
        yield f"  {DECLARED[field.name].name}: {field.type} = {_plain(field.default)}"


def test_settings(oracle: Oracle) -> None:
    """Each class of them: variable, type, default, limits."""
    from batch.settings import BatchSettings
    from coserve.settings import OTHER_NAMES, LocalSettings
    from gateway.settings import GatewaySettings

    lines: list[str] = []
    for kind in (LocalSettings, GatewaySettings, BatchSettings):
        lines += [kind.__name__, *_service(kind)]
    lines += ["RuntimeSettings", *_engine()]
    lines += ["read elsewhere", *(f"  {name}" for name in sorted(OTHER_NAMES))]
    oracle("settings.txt", "\n".join(lines))


def _verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for word, one in getattr(command, "commands", {}).items():
        yield from _verbs(one, (*words, word))


def test_command_line(oracle: Oracle) -> None:
    """What `--help` of each verb says, in 100 columns."""
    from coserve.cli import app

    terminal = {"TERM": "dumb", "COLUMNS": "100", "NO_COLOR": "1"}
    lines = []
    for words in sorted(_verbs(typer.main.get_command(app))):
        told = CliRunner().invoke(app, [*words, "--help"], env=terminal)
        assert told.exit_code == 0, told.output
        lines += [" ".join(["$ coserve", *words, "--help"])]
        lines += [line.rstrip() for line in told.output.splitlines() if line.strip()]
        lines += [""]
    assert len([line for line in lines if line.startswith("$")]) > 45
    oracle("command_line.txt", "\n".join(lines))


def test_tables_of_the_models(oracle: Oracle) -> None:
    """Statements that would make them; `schema.txt` is what migrations have made."""
    from store.models import Base

    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    statements = []
    for table in sorted(Base.metadata.tables.values(), key=lambda one: one.name):
        statements.append(str(CreateTable(table).compile(dialect=dialect)).strip())
        made = sorted(table.indexes, key=lambda one: str(one.name))
        statements += [str(CreateIndex(one).compile(dialect=dialect)) for one in made]
    lines = "\n".join(statements).replace("\t", "  ").splitlines()
    oracle("models.sql", "\n".join(line.rstrip() for line in lines))


def test_contract_rows(oracle: Oracle) -> None:
    """Rows of the API contract that tests claim."""
    sources = {
        str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("*.py")
    }
    found = sorted(claims(sources))
    assert len(found) > 200
    oracle("contract_rows.txt", "\n".join(found))


def test_a_change_is_shown_and_says_how_to_accept_it() -> None:
    told = difference("a.txt", "one\ntwo\n", "one\nthree\n")
    assert "python -m tests.oracles --write" in told.splitlines()[0]
    assert "-two" in told.splitlines()
    assert "+three" in told.splitlines()
    assert difference("a.txt", "one\n", "one\n") == ""


def test_each_file_is_some_tests() -> None:
    tests = "".join(
        path.read_text()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.oracle" in path.read_text()
    )
    assert [one.name for one in FOLDER.iterdir() if f'"{one.name}"' not in tests] == []
