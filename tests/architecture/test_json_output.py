"""JSON leaves the service through `api.json_output`; who writes JSON otherwise stands here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("api", "batch", "gateway", "store")

INSIDE = {
    "api/chunks.py": "compared with what an engine sent",
    "api/json_output.py": "the writer",
    "api/mapped_fields.py": "a grammar, for an engine",
    "api/tool_prompt.py": "words for a model",
    "batch/intake/check_process.py": "between two processes",
    "batch/intake/dry_run.py": "between two processes",
    "batch/intake/idempotency.py": "a digest",
    "batch/intake/line.py": "a digest",
    "gateway/dashboard/engines.py": "figures of a chart, in a page",
    "gateway/dashboard/overview.py": "figures of a chart, in a page",
    "gateway/dashboard/pages.py": "part of a page",
    "gateway/dashboard/row_view.py": "part of a page",
    "gateway/dashboard/batch_view.py": "figures of a chart, in a page",
    "store/repositories/history.py": "for the database",
    "store/repositories/row.py": "for the database",
    "store/repositories/row_browser.py": "for the database",
}
WRITERS = {"orjson.dumps", "json.dumps", "json.dump", "JSONResponse", "model_dump_json"}
WRITERS |= {"dump_json", "to_json"}
SPLITTERS = {"splitlines", "iter_lines", "aiter_lines"}


def names(source: str, wanted: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found = {ast.unparse(node), node.attr} & wanted
        elif isinstance(node, ast.Name):
            found = {node.id} & wanted
        else:
            continue
        yield from found


def users(folders: tuple[str, ...], wanted: set[str]) -> set[str]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {str(p.relative_to(ROOT)) for p in files if [*names(p.read_text(), wanted)]}


def test_one_writer() -> None:
    # Its one subclass of the framework's response hands its content to the writer.
    assert users(FOLDERS, WRITERS) == {*INSIDE, "gateway/http/json_response.py"}


def test_nobody_splits_what_the_service_said_at_other_ends_than_newlines() -> None:
    readers = users(("coserve/commands", "gateway", "batch", "store", "api"), SPLITTERS)
    assert readers == {
        "coserve/commands/logs.py",  # lines of a log, for people
        "coserve/commands/transaction.py",  # the first line of an error of the database
        "gateway/dashboard/submission.py",  # KEY=VALUE lines of a form
    }


def test_another_writer_is_found() -> None:
    assert [*names("def f(x):\n    return Response(orjson.dumps(x))\n", WRITERS)] == [
        "orjson.dumps"
    ]
