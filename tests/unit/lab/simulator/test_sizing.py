"""`coserve plan`, from the command line on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.simulator.sizing import answer, main, read_question
from lab.workload.arrivals import poisson_arrivals

QUICK = ["--window", "5", "--windows", "2", "--policy", "conserve-v1"]


def trace(folder: Path, rate: float, tokens: int = 500) -> str:
    path = folder / "chat.csv"
    lines = [f"{at_s:.3f},{tokens},40" for at_s in poisson_arrivals(rate, 20.0, seed=2)]
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    return str(path)


def test_the_three_questions_are_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--online", trace(tmp_path, 4.0), *QUICK, "--batch-rows", "10000"]
    assert main(argv) == 0
    told = capsys.readouterr().out
    assert "engines for chat alone     1\n" in told
    assert int(re.findall(r"offline tokens a day +([\d,]+)", told)[0].replace(",", "")) > 10**8
    assert re.search(r"the batch of 10,000 is done in [\d.]+ hours", told)


def test_more_chat_takes_more_engines_and_one_fewer_is_too_few(tmp_path: Path) -> None:
    asked = read_question(["--online", trace(tmp_path, 120.0), *QUICK, "--ttft-ms", "200"])
    said: list[str] = []
    found = answer(asked, said.append)
    assert found.engines > 1
    assert min(found.alone) >= 0.99
    fewer = [line for line in said if line.startswith(f"{found.engines - 1} engines")]
    assert len(fewer) == 1
    assert "100.0% of first tokens, 100.0% of gaps" not in fewer[0]


def test_not_enough_engines_is_said_with_the_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--online", trace(tmp_path, 60.0, 4000), *QUICK, "--most", "1", "--ttft-ms", "20"]
    assert main(argv) == 1
    assert capsys.readouterr().out.startswith("1 engines are not enough: ")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--device", "abacus"], "no device 'abacus'"),
        (["--policy", "fifo"], "unknown policy 'fifo'; choose among online_only"),
        (["--router", "dice"], "unknown router 'dice'; choose among round-robin"),
        (["--most", "65"], "--most is 65; it has to be 1 to 64 engines"),
        (["--window", "0"], "--window has to be above 0"),
        (["--batch-rows", "-1"], "--batch-rows has to be 0 or more"),
        (["--batch-input-tokens", "9999999"], "more than the 131072 of the engine's context"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], sentence: str
) -> None:
    assert main(["--online", trace(tmp_path, 4.0), *argv]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("1.0,2", ":2: 2 cells where 3 belong"),
        ("x,2,3", ":2: could not convert"),
        ("-1.0,2,3", ":2: an arrival of -1.0 s; it must be at least 0"),
        ("1.0,0,3", ":2: lengths must be at least 1"),
        ("1.0,200000,3", ":2: 200000 + 3 tokens are more than the 131072"),
    ],
)
def test_a_bad_row_of_a_trace_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, sentence: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(f"arrival_s,input_tokens,output_tokens\n{line}\n")
    assert main(["--online", str(path)]) == 2
    assert sentence in capsys.readouterr().err
