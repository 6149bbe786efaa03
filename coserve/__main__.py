"""`python -m coserve` is `coserve`."""

from __future__ import annotations

from coserve.cli import main

if __name__ == "__main__":
    main()
