"""The README's tables and picture are what the committed results say."""

from __future__ import annotations

import pytest

from bench.coserve_bench import main_result


def test_the_readme_shows_the_committed_results() -> None:
    readme = main_result.README.read_text()
    assert main_result.with_tables(readme) == readme
    assert main_result.PICTURE.read_text() == main_result.picture(
        main_result.read(main_result.EMULATED)
    )


@pytest.mark.parametrize("name", ["EMULATED", "MEASURED"])
def test_each_table_has_all_systems_and_its_number_of_requests(name: str) -> None:
    figures = main_result.read(getattr(main_result, name))
    assert [one.name for one in figures] == [name for _, name, _ in main_result.SYSTEMS]
    readme = main_result.README.read_text()
    assert main_result.table(figures) in readme
    assert f"{figures[0].num_requests} chat requests" in readme
