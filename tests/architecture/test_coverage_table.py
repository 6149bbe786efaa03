"""The table of `make coverage` adds up."""

from __future__ import annotations

from tests.coverage_table import table


def file(ran: int, statements: int, taken: int, branches: int) -> dict[str, dict[str, int]]:
    return {
        "summary": {
            "covered_lines": ran,
            "num_statements": statements,
            "covered_branches": taken,
            "num_branches": branches,
        }
    }


def test_packages_are_summed_and_code_inside_engines_is_left_out() -> None:
    printed = table(
        {
            "batch/intake/line.py": file(8, 10, 1, 2),
            "batch/files/local.py": file(2, 10, 2, 2),
            "api/errors.py": file(5, 5, 0, 0),
            "engine_adapter/refusal.py": file(1, 1, 0, 0),
            "engine_adapter/sglang/plugin.py": file(0, 99, 0, 99),
            "lab/emulated/plugin.py": file(0, 99, 0, 99),
        }
    )
    assert printed.splitlines()[2:] == [
        "| api | 5 | 100.0% | 0 | - |",
        "| batch | 20 | 50.0% | 4 | 75.0% |",
        "| engine_adapter | 1 | 100.0% | 0 | - |",
        "| **all** | 26 | 61.5% | 4 | 75.0% |",
    ]
