"""The papers' tables and figures again, on the engine in memory: `make reproduce`."""
