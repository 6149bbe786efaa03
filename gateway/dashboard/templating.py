"""The template environment: escaping always on, undefined names are errors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway.dashboard import wording
from gateway.dashboard.navigation import menu

HERE = Path(__file__).parent
STATIC = HERE / "static"
ROOT_PATH = "/admin"
"""Where the gateway mounts the dashboard: fragments are made outside of any request."""


@cache
def asset_version(name: str) -> str:
    """A short digest of a static file: its address changes when it does."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def with_query(path: str, kept: Mapping[str, object] = {}, **words: object) -> str:
    """An address with those words that say something, the kept ones first."""
    query = urlencode({name: word for name, word in (*kept.items(), *words.items()) if word})
    return f"{path}?{query}" if query else path


def make_environment() -> Environment:
    """Templates with the wording filters."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": wording.count,
        "size": wording.size,
        "duration": wording.duration,
        "about": wording.about,
        "instant": wording.instant,
        "machine_instant": wording.machine_instant,
        "pace": wording.pace,
        "token_pace": wording.token_pace,
        "as_words": wording.label,
        "share": wording.share,
        "latency": wording.latency,
        "rate": wording.rate,
        "amount": wording.amount,
        "with_query": with_query,
    }
    environment.globals |= {
        "ago": wording.ago,
        "asset_version": asset_version,
        "menu": menu,
        "root_path": ROOT_PATH,
    }
    return environment


ENVIRONMENT = make_environment()
_macros: Any = ENVIRONMENT.get_template("macros.html").module
hidden: Final = _macros.hidden
"""Makes a hidden field of a form, from its name and its value."""


def render(name: str, **values: Any) -> str:
    return ENVIRONMENT.get_template(name).render(**values)
