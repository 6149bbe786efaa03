from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.coserve_bench.loads import load_of, mean_rate, online_trace, prompt_maker
from bench.coserve_bench.options import Options, emulated_table, parse_options
from bench.coserve_bench.systems import find_system
from lab.workload.traces import TraceRequest


def options(tmp_path: Path, *argv: str) -> Options:
    (tmp_path / "config.json").write_text(
        json.dumps({"vocab_size": 1000, "max_position_embeddings": 400})
    )
    return parse_options(["--model-dir", str(tmp_path), "--out", str(tmp_path / "out"), *argv])


def test_the_default_is_the_recorded_starting_point(tmp_path: Path) -> None:
    o = options(tmp_path)
    assert (o.kv_tokens, o.slots, o.outstanding, o.duration_s) == (16384, 24, 32, 100.0)
    assert (o.input_tokens, o.output_tokens) == (256, 32)
    assert (o.offline_input_tokens, o.offline_output_tokens) == (1024, 64)
    assert o.scale is None
    assert o.systems[0] == "online-only"


def test_the_type_of_the_weights_is_named_in_every_result_of_a_cpu(tmp_path: Path) -> None:
    assert options(tmp_path).dtype in ("bfloat16", "float32")
    assert options(tmp_path, "--dtype", "float32").dtype == "float32"
    assert options(tmp_path, "--device", "cuda").dtype is None


def test_an_emulated_gpu_gets_a_model_folder_of_its_own(tmp_path: Path) -> None:
    o = options(tmp_path, "--device", "emulated:h200-llama-3.1-8b")
    assert o.model_dir == tmp_path / "out/models/h200-llama-3.1-8b"
    assert (o.model_dir / "config.json").is_file()
    assert (o.dtype, emulated_table(o.device)) == ("bfloat16", "h200-llama-3.1-8b")
    for device in ("tpu", "emulated:", "emulated:z80"):
        with pytest.raises(ValueError, match=r"--device is cpu, cuda or|no GPU table 'z80'"):
            options(tmp_path, "--device", device)


def test_only_an_emulated_device_has_a_virtual_clock(tmp_path: Path) -> None:
    assert options(tmp_path).clock == "host"
    device = ("--device", "emulated:h200-llama-3.1-8b")
    assert options(tmp_path, *device, "--clock", "virtual").clock == "virtual"
    with pytest.raises(ValueError, match="--clock virtual is for emulated devices, not for cpu"):
        options(tmp_path, "--clock", "virtual")


def test_repeats_differ_and_systems_do_not(tmp_path: Path) -> None:
    o = options(tmp_path)
    assert online_trace(o, 0, 1.0) == online_trace(o, 0, 1.0)
    assert online_trace(o, 0, 1.0) != online_trace(o, 1, 1.0)


def test_the_rate_of_a_short_trace_is_that_while_it_lasts() -> None:
    online = [TraceRequest(float(at_s), 10, 5) for at_s in range(31)]
    assert mean_rate(online, 310.0) == pytest.approx(1.0)
    assert mean_rate(online, 15.5) == pytest.approx(2.0)
    assert mean_rate(online[:1], 10.0) == pytest.approx(0.1)


def test_a_trace_is_cut_stretched_and_clipped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{t},{10 if t else 999},5\n" for t in range(0, 100, 10))
    path.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    o = options(tmp_path, "--online", str(path), "--duration", "60")
    found = online_trace(o, 0, 2.0)
    assert [r.arrival_s for r in found.requests] == [0.0, 20.0, 40.0]
    assert found.requests[0].input_tokens == 200  # half the context of 400
    assert found.num_inputs_clipped == 1


def test_a_workload_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no workload 'nothing': neither a file nor in"):
        options(tmp_path, "--online", "nothing")


@pytest.mark.parametrize(
    "argv",
    [("--scale", "0"), ("--scale", "half"), ("--offline-output-tokens", "0"), ("--slots", "-1")],
)
def test_what_nothing_can_be_measured_with_is_refused(
    tmp_path: Path, argv: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=argv[0]):
        options(tmp_path, *argv)


def test_requests_that_arrive_at_once_have_the_rate_of_the_window() -> None:
    assert mean_rate([TraceRequest(0.0, 10, 5)] * 20, 10.0) == pytest.approx(2.0)


def test_on_off_arrivals(tmp_path: Path) -> None:
    o = options(tmp_path, "--on-off", "10,20,10", "--rate", "5")
    arrivals = [r.arrival_s for r in online_trace(o, 0, 1.0).requests]
    assert arrivals
    assert not [at_s for at_s in arrivals if 10.0 <= at_s < 30.0]


def test_online_only_gets_no_offline_rows_and_no_priorities(tmp_path: Path) -> None:
    o = options(tmp_path)
    alone = load_of(o, find_system("online-only"), [], 0)
    beside = load_of(o, find_system("conserve-v2"), [], 0)
    assert (alone.offline, alone.send_priority) == (None, False)
    assert beside.offline is not None
    assert next(beside.offline) == (1024, 64)
    assert beside.send_priority
    assert len(prompt_maker(o).make("x", 7)) == 7
