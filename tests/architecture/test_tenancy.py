"""Whoever asks for an owned object says for whom: a query without an owner is the exception.

Read from the code: every public function of `store/repositories` that touches an owned table has
a parameter that names the owner, or stands in the list below with the reason why it has none; and
the routes of the API call none of the latter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from store.models import Base

ROOT = Path(__file__).parents[2]
OWNERS = {"project_id", "organization_id", "owner", "batch", "project", "file", "conversation"}
"""Parameters that name an owner; a `batch` or another object was found under one."""

SERVES_ALL_MODULES: dict[str, str] = {
    "dispatch_count": "the dispatchers' backlog, by model",
    "row": "rows by the id of their batch, and the sweep's",
    "progress": "readings by the ids of batches that were found under a project",
    "retention": "what has ended, of all projects",
    "webhook_delivery": "the deliverer, which sends for all projects",
}

SERVES_ALL: dict[str, str] = {
    # Stages of a batch's life act for all projects, by the id that a task carries.
    "batch.find": "stage",
    "batch.find_all": "stage",
    "batch.lock": "stage",
    "batch.lock_all": "stage",
    "validation.inputs": "stage",
    "validation.is_wanted": "stage",
    "batch.move": "stage",
    "batch.stopped": "dispatcher",
    "batch.is_overdue": "stage",
    "batch.with_expired_rows": "stage",
    "stage.end_future_leases": "sweep",
    "repeat.batches_with_repeats": "dispatcher",
    "response.program_wanted_at": "by a batch that was found under its project",
    "repeat.known": "stage; within the project of the batch",
    "dispatcher.has_claimable_rows": "sweep",
    # The host and the key ring, before it is known who asks.
    "key.find_by_hash": "who is asking",
    "key.find_by_plaintext": "who is asking",
    "key.find_operator": "who is asking in the dashboard",
    "key.unusable": "which of the keys in use have ended",
    "key.touch": "keys that were found usable",
    "key.revoke": "a key that was found for its organisation",
    "key.find": "the command line of the host",
    "key.list_all": "the command line of the host",
    "overview.num_by_status": "metrics",
    "overview.due_first": "metrics",
    "project.find": "the command line of the host",
    "file.add_all": "each file names its project",
    "file.collectable": "sweep",
    "file.live_batch_reading": "by a file that was found under its project",
    "file.names": "of batches that were found under their project",
    "file.read_by_live_batches": "sweep",
    "idempotency.collect": "sweep",
    "conversation.collect": "sweep",
    "response.collect": "sweep",
    "batch.result_states": "followers, by ids that were found under their projects",
    "response.states": "followers, by ids that were found under their projects",
    "long_stage.project_of_long": "stage",
    "parted_upload.add": "the upload names its project",
    "parted_upload.forget_past": "sweep",
    "parted_upload.spent_parts": "sweep, or by an upload that was found under its project",
    "usage.add": "each counter names its project",
    "webhook_endpoint.failed": "deliverer",
    "webhook_endpoint.succeeded": "deliverer",
}


def owned_tables() -> set[str]:
    """Tables whose rows belong to a project or an organisation."""
    return {
        name
        for name, table in Base.metadata.tables.items()
        if {"project_id", "organization_id"} & set(table.columns.keys())
    }


def owned_models() -> set[str]:
    return {
        mapper.class_.__name__
        for mapper in Base.registry.mappers
        if str(mapper.local_table) in owned_tables()
    }


def repository_functions() -> Iterator[tuple[str, ast.AsyncFunctionDef | ast.FunctionDef, str]]:
    """(module.function, its tree, its source) of every public function."""
    for path in sorted((ROOT / "store/repositories").glob("*.py")):
        source = path.read_text()
        for node in ast.parse(source).body:
            if not isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            if not node.name.startswith("_"):
                text = ast.get_source_segment(source, node) or ""
                yield f"{path.stem}.{node.name}", node, text


def touches_owned(source: str) -> bool:
    """Whether a function names an owned model, or an owned table in SQL."""
    models = "|".join(sorted(owned_models()))
    tables = "|".join(sorted(owned_tables()))
    return bool(
        re.search(rf"\b({models})\b", source)
        or re.search(rf"\b(FROM|JOIN|UPDATE|INTO)\s+({tables})\b", source)
    )


def names_an_owner(name: str, node: ast.AsyncFunctionDef | ast.FunctionDef) -> bool:
    # A project's owner is its organisation: its own id names nobody.
    owners = OWNERS - {"project_id"} if name.startswith("project.") else OWNERS
    arguments = node.args
    return bool(owners & {one.arg for one in (*arguments.args, *arguments.kwonlyargs)})


def without_owner() -> set[str]:
    return {
        name
        for name, node, source in repository_functions()
        if touches_owned(source)
        and not names_an_owner(name, node)
        and name.partition(".")[0] not in SERVES_ALL_MODULES
    }


def test_the_owned_tables_are_those_one_expects() -> None:
    assert {"files", "batches", "api_keys", "usage", "idempotency_keys", "projects"} <= (
        owned_tables()
    )


def test_every_query_for_an_owned_object_names_its_owner() -> None:
    assert without_owner() - set(SERVES_ALL) == set()


def test_what_names_its_owner_by_now_is_no_exception_any_more() -> None:
    known = {name for name, _, _ in repository_functions()}
    assert set(SERVES_ALL) & known - without_owner() == set()


def test_no_route_of_the_api_asks_for_all_tenants() -> None:
    found = []
    for path in sorted((ROOT / "gateway/routes").glob("*.py")):
        tree = ast.parse(path.read_text())
        modules = {
            alias.asname or alias.name: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "store.repositories"
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = f"{modules.get(node.value.id)}.{node.attr}"
                if called in SERVES_ALL or called.startswith("overview."):
                    found.append((path.name, called))
    assert found == []
