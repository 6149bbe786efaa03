"""`coserve docs`: the pages of this version as a site, out of the wheel; no network needed."""

from __future__ import annotations

import functools
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import typer

from coserve.commands.terminal import refuse

SITE = Path(__file__).resolve().parents[1] / "site"


def docs(
    port: Annotated[int, typer.Option(help="Port; 0: any that is free.", min=0, max=65535)] = 0,
) -> None:
    """Serve the pages of this version on this machine until Ctrl-C."""
    if not (SITE / "index.html").is_file():
        refuse("The pages come with the wheel. In a checkout: make docs")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(SITE))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        refuse(f"Port {port} cannot be used: {error.strerror}.", status=2)
    with server:
        typer.echo(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
