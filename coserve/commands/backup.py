"""`coserve backup FILE` and `coserve restore FILE`: a state directory as one file, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coserve.commands.listing import AsJson, print_json
from coserve.commands.transaction import database_url
from coserve.commands.up import read_settings

if TYPE_CHECKING:
    from coserve.settings import LocalSettings

Target = Annotated[Path, typer.Argument(dir_okay=False, help="The file to make.")]
Source = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A backup.")
]


def backup(target: Target, json: AsJson = False) -> None:
    """Write database, files, keys and profiles to one file; the service goes on meanwhile."""
    from dataclasses import asdict

    from coserve.local.backup import BackupError, back_up

    settings = read_settings()
    objects = _objects(settings)
    try:
        manifest = back_up(target, settings.home_path, database_url(), objects)
    except BackupError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if json:
        print_json(asdict(manifest))
        return
    files = (
        "files are in a store of their own" if objects is None else f"{manifest.num_files:,} files"
    )
    typer.echo(
        f"{target}: {manifest.num_batches:,} batches, {files}, {target.stat().st_size:,} bytes"
    )
    for key in manifest.missing:
        typer.echo(f"not there, though the database names it: {key}", err=True)


def restore(source: Source) -> None:
    """Fill an empty state directory, or the empty database of DATABASE_URL, from a backup."""
    from coserve.local import backup as backups
    from coserve.local.lock import AlreadyRunningError, HomeLock, LeftoversError
    from coserve.local.postgres import PostgresError

    settings = read_settings()
    home = settings.home_path
    try:
        manifest = backups.read_manifest(source)
        lock = HomeLock(home, settings.root_url)
        try:
            lock.wait_for_children(10.0)
            _fill(settings, source)
        finally:
            lock.release()
    except (backups.BackupError, AlreadyRunningError, LeftoversError, PostgresError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{manifest.num_batches:,} batches are back. Start with: coserve up")


def _fill(settings: LocalSettings, source: Path) -> None:
    from coserve.local import backup as backups

    def load(url: str, place: str) -> None:
        from coserve.local.stack import migrate

        if not backups.is_empty(url):
            raise backups.BackupError(
                f"{place} has tables already; a backup is restored to an empty database. "
                "Move what is there away first."
            )
        dump = backups.unpack(source, settings.home_path, _objects(settings))
        try:
            backups.load(dump, url)
        finally:
            dump.unlink()
        migrate(url)

    if settings.database_url:
        load(settings.database_url, "The database of DATABASE_URL")
    else:
        asyncio.run(_with_database(settings.home_path, load))


async def _with_database(home: Path, work: Callable[[str, str], None]) -> None:
    """Run the embedded server for as long as `work` needs it."""
    from coserve.local import postgres
    from coserve.local.part import Part
    from coserve.local.plans import postgres_plan
    from coserve.local.stack import DATABASE_NAME

    files = await asyncio.to_thread(postgres.prepare, home)
    part = Part(postgres_plan(files, home), say=typer.echo, changed=lambda: None)
    await part.start()
    try:
        await asyncio.to_thread(postgres.ensure_database, files, DATABASE_NAME)
        place = f"The database in {files.data_dir}"
        await asyncio.to_thread(work, files.url(DATABASE_NAME), place)
    finally:
        await part.stop()


def _objects(settings: LocalSettings) -> Path | None:
    """The folder of objects; none where files are in S3, which keeps its own copies."""
    from urllib.parse import unquote, urlsplit

    from batch.settings import BatchSettings

    url = BatchSettings().files_url
    if url is None:
        return settings.home_path / "files" / "objects"
    parts = urlsplit(url)
    return Path(unquote(parts.path)) / "objects" if parts.scheme == "file" else None
