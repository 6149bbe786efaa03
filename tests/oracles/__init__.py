"""What the product shows outside, written down: a change of code that moves it shows as a diff.

    python -m tests.oracles --write     # writes tests/data/oracles anew

Each file is compared by one test, which has the marker `oracle`. A change that is meant to move one
writes it anew in the same commit.
"""
