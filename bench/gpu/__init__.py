"""What a CUDA device shows in ten minutes, on a host without a network; README.md says how.

    python -m bench.gpu.bundle      # here: an archive of all that must travel
    python -m bench.gpu.host_run    # there: every stage, each result a file of its own

Nothing of it has run on CUDA yet; docs/not-run-on-a-gpu.md names what was rehearsed.
"""
