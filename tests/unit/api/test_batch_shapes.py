"""Wire shapes of files and batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.batch_shapes import BatchList, BatchObject, FileList, FileObject, may_be_id
from store.models import Batch, File

CREATED = datetime(2026, 1, 1, 0, 0, 0, 900_000, tzinfo=UTC)
CREATED_S = 1767225600


def file(**changes: Any) -> File:
    columns = {
        "id": "file-1",
        "size_bytes": 3,
        "created_at": CREATED,
        "filename": "in.jsonl",
        "purpose": "batch",
    }
    return File(**columns | changes)


def batch(**changes: Any) -> Batch:
    columns = {
        "id": "batch_1",
        "endpoint": "/v1/completions",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "validating",
        "created_at": CREATED,
        "expires_at": CREATED + timedelta(days=1),
        "num_total": 0,
        "num_completed": 0,
        "num_failed": 0,
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "completion_tokens": 0,
        "reasoning_tokens": 0,
    }
    return Batch(**columns | changes)


def test_a_file_leaves_out_what_is_unset() -> None:
    assert FileObject.of(file()).model_dump() == {
        "id": "file-1",
        "object": "file",
        "bytes": 3,
        "created_at": CREATED_S,
        "filename": "in.jsonl",
        "purpose": "batch",
        "status": "processed",
    }
    assert FileObject.of(file(expires_at=CREATED)).model_dump()["expires_at"] == CREATED_S


def test_a_batch_has_every_key() -> None:
    assert BatchObject.of(batch()).model_dump() == {
        "id": "batch_1",
        "object": "batch",
        "endpoint": "/v1/completions",
        "model": None,
        "errors": None,
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": CREATED_S,
        "in_progress_at": None,
        "expires_at": CREATED_S + 86400,
        "finalizing_at": None,
        "completed_at": None,
        "failed_at": None,
        "expired_at": None,
        "cancelling_at": None,
        "cancelled_at": None,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "usage": None,
        "metadata": None,
        "coserve": None,
    }


def test_a_batch_that_ran() -> None:
    tokens = {"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 5}
    counts = {"num_total": 3, "num_completed": 2, "num_failed": 1}
    ran = BatchObject.of(batch(in_progress_at=CREATED, reasoning_tokens=2, **tokens, **counts))
    assert ran.request_counts.model_dump() == {"total": 3, "completed": 2, "failed": 1}
    assert ran.usage is not None
    assert ran.usage.model_dump() == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }


def test_a_batch_that_failed() -> None:
    fault = {"code": "empty_file", "message": "The file has no requests.", "param": None}
    failed = BatchObject.of(batch(status="failed", errors=[fault | {"line": None}]))
    assert failed.errors is not None
    assert failed.errors.model_dump() == {"object": "list", "data": [fault | {"line": None}]}


def test_lists_have_all_five_keys() -> None:
    empty: dict[str, Any] = {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }
    assert FileList.of([], has_more=False).model_dump() == empty
    assert BatchList.of([], has_more=False).model_dump() == empty
    page = FileList.of([file(id="file-2"), file(id="file-1")], has_more=True)
    assert (page.first_id, page.last_id, page.has_more) == ("file-2", "file-1", True)


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        ("file-0123abc", True),
        ("batch_x", True),
        ("", False),
        ("a\0", False),
        ("é", False),
        ("x" * 65, False),
        ("file-1\n", False),
    ],
)
def test_ids(text: str, may_be: bool) -> None:
    assert may_be_id(text) is may_be
