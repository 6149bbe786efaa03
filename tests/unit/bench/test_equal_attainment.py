from __future__ import annotations

from pathlib import Path

import pytest

from bench import equal_attainment
from bench.equal_attainment import SCALES, Case, Knob, chat, device_of, last_in_time, sweep
from bench.equal_attainment_page import plot, seeds_table, table
from bench.report import between, jain


def figures(harvest: float, share: float) -> dict[str, float]:
    return {"offline": harvest, "ttft_ok": share, "gap_ok": 1.0}


@pytest.mark.parametrize("most", [0.1, 0.65, 1.0, 9.0])
def test_the_last_setting_in_time_is_found(most: float) -> None:
    line: list[Knob] = [(scale, 256, 2048) for scale in SCALES]
    found = last_in_time(line, lambda knob: figures(knob[0], 1.0 if knob[0] <= most else 0.9))
    in_time = [scale for scale in SCALES if scale <= most]
    assert (found[0][0] if found else None) == (in_time[-1] if in_time else None)


def test_fairness_is_one_for_equals_and_a_share_for_one_alone() -> None:
    assert jain([3.0, 3.0]) == 1.0
    assert jain([3.0, 0.0]) == 0.5
    assert jain([0.0, 0.0]) == 0.0


def test_a_sweep_without_traces_ends_in_a_row_and_a_bar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(equal_attainment, "MEASURED_S", 4.0)
    monkeypatch.setattr(equal_attainment, "LEAD_S", 1.0)
    monkeypatch.setattr(equal_attainment, "SCALES", (0.5,))
    case = Case("azure-conv", 3, tmp_path)
    assert chat(case, device_of(2048)) == chat(case, device_of(2048))
    cell = sweep(case, "conserve_v2")
    assert not cell["real"]
    cell |= {"knob": [0.5, 256, 2048], "figures": cell["figures"] or cell["alone"]}
    missed = cell | {"policy": "bros", "figures": None}
    lines = table([missed, cell], "azure-conv").splitlines()
    assert lines[-2].startswith("| `conserve_v2` |")
    assert lines[-1] == "| `bros` | none in time | | | | | | |"
    assert "misses the targets" in plot([missed, cell])


def test_seeds_are_compared_in_pairs() -> None:
    def cell(policy: str, seed: int, offline: float | None) -> equal_attainment.Cell:
        found = None if offline is None else {"offline": offline}
        knob = [0.9, 256, 2048]
        return {
            "trace": "t", "seed": seed, "policy": policy, "knob": knob, "figures": found
        }  # fmt: skip

    rows = [
        cell("conserve_v2", 1, 100.0), cell("conserve_v2", 2, 200.0), cell("bros", 1, None),
        cell("sarathi_p", 1, 102.0), cell("sarathi_p", 2, 198.0),
    ]  # fmt: skip
    shown = seeds_table(rows)
    assert "| t | `sarathi_p` | 150 (102 to 198) | +0.5 % (-1.0 to +2.0) |" in shown
    assert "| t | `conserve_v2` | 150 (100 to 200) |  |" in shown
    assert "| t | `bros` | none in time | | |" in shown
    assert between("a<b>old<c>d", "<b>", "<c>", "new") == "a<b>\n\nnew\n<c>d"
