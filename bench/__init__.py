"""Benchmarks: one question a file or package, whose docstring says how to ask and who quotes it.

    python -m bench --list

names them with their questions. Figures go to `bench/results`, with the environment they come from.

What they share:

    report.py         options, a folder, targets; how figures are printed and kept
    paths.py          where results, workloads, the engine's environment and the model lie
    servers.py        Postgres, Valkey, fake engines and gateways, started and stopped
    installation.py   the whole service under its supervisor, and a customer's calls
    batches.py        batches and dispatchers without the service
    processes.py      CPU and memory of processes, read from outside
"""
