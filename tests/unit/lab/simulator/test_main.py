"""`coserve simulate` from its command line to its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.simulator.__main__ import main

HEADER = "arrival_s,input_tokens,output_tokens\n"
QUICK = ["--duration", "4", "--lead", "1", "--slots", "32", "--outstanding", "40", "--rate", "6"]


def test_a_comparison_leaves_table_json_csv_and_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*QUICK, "--policies", "conserve_v2", "--repeats", "2", "--out", str(tmp_path)]
    assert main(argv) == 0
    told = capsys.readouterr().out
    assert "conserve-v2" in told
    assert "simulated: meta-llama/Meta-Llama-3.1-8B on 1 x h200_sxm" in told
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results["systems"]) == ["online-only", "conserve-v2"]
    ours = results["systems"]["conserve-v2"]
    assert ours["offline_tokens_per_s"] > 0 < ours["offline_work_s_per_s"]
    assert ours["tpot_ms"]["p50"] > 0
    assert len(ours["repeats"]) == len(results["environment"]["slo_ms"]) == 2
    assert str(tmp_path) not in json.dumps(results)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "results.json", "table.txt", "requests.csv", "tokens.csv",
        "ttft.svg", "tbt.svg", "offline.svg", "steps.svg",
    }  # fmt: skip
    first = (tmp_path / "requests.csv").read_text()
    assert main(argv) == 0
    assert (tmp_path / "requests.csv").read_text() == first


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(HEADER + "".join(f"{i / 10},{100 + i},9\n" for i in range(60)))
    argv = [*QUICK, "--online", str(trace), "--online-start", "1", "--policies", "online-only"]
    assert main([*argv, "--scale", "2", "--out", str(tmp_path / "out")]) == 0
    requests = (tmp_path / "out/requests.csv").read_text().splitlines()[1:]
    assert len(requests) == 20  # two of six seconds, stretched over four
    assert requests[0].split(",")[4] == "110"


def test_repeats_are_spread_over_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(HEADER + "".join(f"{i / 10},{100 + i},9\n" for i in range(601)))
    argv = [*QUICK, "--online", str(trace), "--policies", "online-only", "--spread"]
    assert main([*argv, "--repeats", "3", "--out", str(tmp_path / "out")]) == 0
    requests = [
        request.split(",")
        for request in (tmp_path / "out/requests.csv").read_text().splitlines()[1:]
    ]
    first = {request[1]: int(request[4]) for request in reversed(requests)}
    assert sorted(first.values()) == [100, 380, 660]  # at 0, 28 and 56 s of a minute


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--spread"], "--spread spreads windows over a trace"),
        (["--device", "z80"], "no device 'z80'"),
        (["--policies", "fifo"], "unknown policy 'fifo'; choose among online_only"),
        (["--online", "nowhere"], "no workload 'nowhere'"),
        (["--rate", "-1"], "--rate is -1.0; it has to be a number of at least 0"),
        (["--duration", "nan"], "--duration is nan"),
        (["--fleet", "65"], "--fleet is 65; it has to be 1 to 64 engines"),
        (["--router", "dice"], "unknown router 'dice'; choose among round-robin"),
        (["--predictor", "tea"], "unknown length predictor 'tea'; choose among history"),
        (["--slots", "0"], "--slots has to be above 0"),
        (["--ttft-ms", "0"], "--ttft-ms has to be above 0"),
        (["--on-off", "3,x"], "--on-off takes numbers between commas"),
        (["--noise-memory", "1"], "--noise-memory lies between 0 and 1"),
        (["--target-percentile", "90"], "--target-percentile lies above 0"),
        (["--input-tokens", "200000"], "more than the 131072 of the engine's context"),
        (["--offline-input-tokens", "200000"], "offline requests: 200000 + 128 tokens are more"),
        ([*QUICK, "--rate", "400"], "overloaded: the queue of online_only grows"),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*argv, "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert sentence in told


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("0,5", "t.csv:3: 2 cells where 3 belong"),
        ("1,2.5,3", "t.csv:3: invalid literal"),
        ("-1,5,5", "t.csv:3: an arrival of -1 s"),
        ("inf,5,5", "t.csv:3: an arrival of inf s"),
        ("1,0,5", "t.csv:3: lengths must be at least 1"),
        ("1,131000,200", "t.csv:3: 131000 + 200 tokens are more than the 131072"),
    ],
)
def test_a_bad_line_of_a_trace_is_named(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(f"{HEADER}0,10,10\n{line}\n")
    assert main(["--online", str(trace), "--out", str(tmp_path)]) == 2
    assert sentence in capsys.readouterr().err


def test_clip_shortens_what_is_too_long(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(f"{HEADER}0,131000,200\n1,10,10\n")
    argv = [*QUICK, "--online", str(trace), "--clip", "--policies", "online_only"]
    assert main([*argv, "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["environment"]["clipped"] == {"inputs": 1, "outputs": 0}
