"""`coserve batch` without a service: checking, and what it says when there is none."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from coserve.commands.batch.group import app
from coserve.commands.service_client import find_base_url
from coserve.local.lock import HomeLock


def line(custom_id: str, url: str = "/v1/chat/completions", **body: object) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    for name in ("COSERVE_API_KEY", "COSERVE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path / "no-such-home"))
    return CliRunner()


def test_a_good_file(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(line("a") + b"\n" + line("b"))
    result = runner.invoke(app, ["check", str(path)])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == "in.jsonl: 2 requests for model m, no errors"


def test_the_endpoint_is_that_of_the_first_line(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line("a", "/v1/completions", prompt="Once", messages=None))
    assert runner.invoke(app, ["check", str(path)]).exit_code == 0
    result = runner.invoke(app, ["check", str(path), "--endpoint", "/v1/chat/completions"])
    assert result.exit_code == 1
    assert "in.jsonl:1: invalid_url" in result.output


def test_a_file_of_the_wrong_kind_does_not_fill_the_screen(
    runner: CliRunner, tmp_path: Path
) -> None:
    path = tmp_path / "README.md"
    path.write_bytes(b"no JSON\n" * 210)
    for verb in ("check", "submit"):
        lines = runner.invoke(app, [verb, str(path)]).output.splitlines()
        assert lines[19].startswith("README.md:20: invalid_json_line: ")
        assert lines[20:22] == ["and 190 more", "210 errors"]


def test_every_error_is_shown_even_beyond_the_cap_of_the_service(
    runner: CliRunner, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"{\n" * 1500 + line("a") + b"\n" + line("a"))
    result = runner.invoke(app, ["check", str(path), "--all"])
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("in.jsonl:1: invalid_json_line: ")
    assert lines[1500].startswith("in.jsonl:1502: duplicate_custom_id: ")
    assert lines[-1] == "1,501 errors"


def test_a_model_that_is_not_served(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(line("a"))
    assert runner.invoke(app, ["check", str(path), "--model", "m"]).exit_code == 0
    result = runner.invoke(app, ["check", str(path), "--model", "other"])
    assert result.exit_code == 1
    assert "model_not_found" in result.output


def test_a_file_that_is_not_there(runner: CliRunner, tmp_path: Path) -> None:
    assert runner.invoke(app, ["check", str(tmp_path / "none.jsonl")]).exit_code == 2


def test_a_bad_file_is_not_sent(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"{")
    result = runner.invoke(app, ["submit", str(path)])
    assert result.exit_code == 1
    assert result.output.splitlines()[-2:] == ["1 error", "Nothing was sent."]


def test_no_key_is_said_plainly(runner: CliRunner) -> None:
    result = runner.invoke(app, ["list"])
    assert result.exit_code == 1
    assert "No API key" in result.output


def test_a_service_that_is_not_there_is_said_plainly(runner: CliRunner) -> None:
    arguments = ["get", "batch_x", "--api-key", "k", "--base-url", "http://127.0.0.1:1/v1"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 1
    assert "The service does not answer at http://127.0.0.1:1/" in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_metadata_must_be_pairs(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(line("a"))
    result = runner.invoke(app, ["submit", str(path), "--metadata", "novalue", "--api-key", "k"])
    assert result.exit_code == 2


@pytest.mark.usefixtures("runner")
def test_the_service_is_the_one_that_runs_on_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_base_url(None) == "http://127.0.0.1:8080/v1"
    home = tmp_path / "second-checkout"
    monkeypatch.setenv("COSERVE_HOME", str(home))
    lock = HomeLock(home, "http://127.0.0.1:9123")
    assert find_base_url(None) == "http://127.0.0.1:9123/v1"
    assert find_base_url("http://there/v1") == "http://there/v1"
    lock.release()
    assert find_base_url(None) == "http://127.0.0.1:8080/v1"
