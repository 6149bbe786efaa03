"""Devices by name and by file, and how well policies can predict them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_adapter.gpu_tables.gpu_table import FOLDER, GpuTimes, gpu_table_names, load_gpu_table
from engine_adapter.scheduling.fit import Sample, errors_by_kind, fit_with_holdout, make_grid
from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.plan import StepKind
from engine_adapter.scheduling.profile import Profile, ProfileKey, save_profile
from lab.simulator.device import EngineSize, engine_for, find_device, stock_engine


@pytest.mark.parametrize("name", gpu_table_names())
def test_every_table_makes_a_device(name: str) -> None:
    device = find_device(name, EngineSize())
    assert device.shape.total_pages == load_gpu_table(name).kv_tokens
    assert device.shape.limits.num_layers >= 32
    assert 0.0 < device.prompt_token_s(1024) < device.output_token_s(1152)
    # What policies predict is what steps take, to what a polynomial can follow.
    for requests in (1, 32, 200):
        load = StepLoad()
        for _ in range(requests):
            load.add_decode(1000)
        assert device.model.predict(load) == pytest.approx(device.times.step_s(load, ()), rel=0.3)


def test_a_size_overrides_what_the_device_has() -> None:
    size = EngineSize(
        kv_tokens=5000, slots=7, chunk_tokens=256, overhead_s=0.001, batch_size_buckets=()
    )
    device = find_device(str(FOLDER / "a100-llama-3.1-8b.json"), size)
    shape = device.shape
    assert (shape.total_pages, shape.total_slots, shape.overhead_s) == (5000, 7, 0.001)
    assert shape.limits.max_chunk_tokens == 256
    assert shape.limits.decode_safepoints  # steps without graphs can be stopped
    assert device.max_context == 5000


def test_a_stored_profile_is_a_device(tmp_path: Path) -> None:
    times = GpuTimes(load_gpu_table("h100-llama-3.1-8b"))
    samples = [
        Sample(c.decode, c.chunks, times.step_s(c.chunks, len(c.decode), sum(c.decode)))
        for c in make_grid(512, 20_000, 32, 8192)
    ]
    fit = fit_with_holdout(samples)
    profile = Profile.from_fit(ProfileKey("m", "some CPU", "tp1", "0.5.16"), fit, num_layers=30)
    device = find_device(str(save_profile(profile, tmp_path)), EngineSize(slots=8))
    load = StepLoad()
    load.add_chunk(256, 0)
    assert device.times.step_s(load, ((256, 0),)) == device.model.predict(load)
    assert "some CPU" in device.about
    assert errors_by_kind(fit.model, samples)[StepKind.DECODE].mean < 0.3


def test_what_is_no_device_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither a file nor one of a100-llama-3"):
        find_device("z80", EngineSize())
    path = tmp_path / "x.json"
    for text in ("{", "[]", '{"a": 1}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="neither a profile nor a GPU table"):
            find_device(str(path), EngineSize())


def test_stock_has_no_slots_of_its_own_no_host_and_keeps_prompts() -> None:
    device = find_device("a100-llama-3.1-8b", EngineSize())
    stock = stock_engine(device, "512+mixed")
    assert (stock.shape.reserved_share, stock.shape.host_total_pages) == (0.0, 0)
    assert stock.shape.limits.max_chunk_tokens == 512
    assert stock.shape.limits.can_mix
    assert not stock_engine(device).shape.limits.can_mix
    assert device.shape.limits.can_mix  # the other is as it was
    assert engine_for(device, "conserve_v2") is device
    assert engine_for(device, "sglang_priority@256").shape.limits.max_chunk_tokens == 256
