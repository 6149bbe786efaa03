"""The README's tables and picture are what the committed results say."""

from __future__ import annotations

from bench.coserve_bench import main_result


def test_the_readme_shows_the_committed_results() -> None:
    figures = main_result.read()
    simulated = main_result.read(main_result.SIMULATED, main_result.SIMULATED_SYSTEMS)
    readme = main_result.README.read_text()
    assert main_result.table(figures) in readme
    assert main_result.table(simulated) in readme
    assert main_result.with_tables(readme) == readme
    assert main_result.PICTURE.read_text() == main_result.picture(figures)
    assert f"{figures[0].num_requests} chat requests" in readme
    assert f"{simulated[0].num_requests:,} chat requests" in readme
