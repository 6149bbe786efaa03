"""What each rule of ConServe v2 brings, and how the policies compare: simulated on step tables.

    python -m bench.ablation                 # every rule; bench/results/ablation.json
    python -m bench.ablation --policies      # the policies; bench/results/policies.json

bench/cells.py says what a cell is. Its window lasts for three lifetimes of an offline request,
or until 320 online requests have come if that is later; for the rules for one, or until 160 have
come, each with three seeds.

Quoted in docs/benchmark-coserve-details.md and docs/scheduler-figures.md.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.cells import (
    FOR_RULES,
    SEEDS,
    TRACES,
    WITH_PACE,
    System,
    Systems,
    averages,
    cases_of,
    cell_parser,
    run_case,
    run_cases,
    show,
)
from bench.paths import RESULTS
from bench.report import write_cells
from engine_adapter.scheduling.policies.settings import RULES, PolicySettings

LOADS = ("azure-conv", "burstgpt", "gamma", "on-off")
PACES = (1.1, 1.4, 1.7, 2.2)

PLANNED, PLANNED_SHARES = "first tokens at", (0.3, 0.7, 1.0)
"""Not the default: first tokens are planned for another share of their target (decision 0154)."""

SWITCHES = {
    "safepoints": {"safepoints": False},
    "drop_mixed": {"drop_mixed": False},
    "checkpoints": {"checkpoints": False},
}


def rule_systems() -> Systems:
    """The policy whole, and without each rule."""
    plain = PolicySettings()
    made: Systems = {
        "non_preemptive": System("non_preemptive"),
        "conserve_v2": System("conserve_v2"),
    }
    for rule in RULES:
        made[f"- {rule}"] = System("conserve_v2", replace(plain, without=frozenset({rule})))
    for name, change in SWITCHES.items():
        made[f"- {name}"] = System("conserve_v2", replace(plain, **change))  # type: ignore[arg-type]
    for name in ("- quantile", "conserve_v2"):
        made[f"{name}{WITH_PACE}"] = made[name]
    return made


def policy_systems() -> Systems:
    """The policies that are compared."""
    names = ("non_preemptive", "sarathi_p", "conserve_v1", "conserve_v2")
    made = {name: System(name) for name in names}
    paces = ("", *(f" {pace}" for pace in PACES))
    for share in PLANNED_SHARES:
        made[f"{PLANNED} {share}"] = System(
            "conserve_v2", PolicySettings(ttft_planning_share=share)
        )
    return {
        **made,
        **{f"conserve_v2{WITH_PACE}{pace}": System("conserve_v2") for pace in paces},
    }


def main() -> int:
    """Run all cells, two at a time, and write them down."""
    parser = cell_parser(__doc__)
    parser.add_argument("--policies", action="store_true", help="compare policies, not rules")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--only", default="", help="of the systems, comma separated")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    systems = policy_systems() if args.policies else rule_systems()
    if args.only:
        wanted = {"non_preemptive", *args.only.split(",")}
        systems = {name: made for name, made in systems.items() if name in wanted}
    loads = args.loads or ",".join((*TRACES, "gamma", "on-off") if args.policies else LOADS)
    window = {} if args.policies else FOR_RULES
    cases = cases_of(args.devices, loads, args.seeds, **window)
    cells = run_cases(cases, partial(run_case, systems=systems), args)
    out = args.out or RESULTS / ("policies.json" if args.policies else "ablation.json")
    write_cells(out, cells)
    for device in dict.fromkeys(case.device for case in cases):
        for load in dict.fromkeys(case.load for case in cases):
            some = [cell for cell in cells if cell["case"][:2] == [device, load]]
            print(f"\n{device}, {load}: targets {some[0]['targets_ms']} ms, n {some[0]['n']}")
            for name in systems:
                show(name, averages(some, name))
    print("\nall")
    for name in systems:
        show(name, averages(cells, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
