"""``python -m lab.simulator``: what ``coserve simulate`` runs."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lab.simulator.experiment import Experiment
from lab.simulator.options import parse_options
from lab.workload.report import table


def main(argv: list[str] | None = None) -> int:
    """Simulate, print the table.

    Returns:
        0 if it ended with a table, 2 if it was asked for something that cannot be simulated: an
        unknown device or policy, a trace that cannot be used, too much load.
    """
    try:
        experiment = Experiment(parse_options(argv))
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        ) as bar:
            task = bar.add_task("simulating", total=experiment.simulated_s)
            results = experiment.run(
                lambda name, seconds: bar.update(task, description=name, advance=seconds)
            )
    except (ValueError, OSError) as refused:
        sys.stderr.write(f"{refused}\n")
        return 2
    sys.stdout.write(f"{table(results)}\n\nsimulated: {experiment.device.about}\n")
    sys.stdout.write(f"results, CSV files and plots: {experiment.options.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
