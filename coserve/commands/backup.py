"""`coserve backup FILE` and `coserve restore FILE`: a state directory as one file, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coserve.commands.listing import AsJson
from coserve.commands.settings import read_settings
from coserve.commands.terminal import print_json, refuse
from coserve.commands.transaction import database_url

if TYPE_CHECKING:
    from coserve.backup.archive import Archive, Manifest
    from coserve.settings import LocalSettings

Target = Annotated[Path, typer.Argument(dir_okay=False, help="The file to make, or to verify.")]
Source = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A backup.")
]
_MOST_NAMED = 20


def backup(
    target: Target,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read a backup whole; 1 if it is not what was written.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Write database, files, keys and profiles to one file; the service goes on meanwhile."""
    from dataclasses import asdict

    from coserve.backup.archive import Archive, BackupError
    from coserve.backup.making import back_up

    try:
        if verify:
            with Archive(target) as archive:
                _check(archive, without_digests=False)
                manifest = archive.manifest
        else:
            settings = read_settings()
            settings.home_path.mkdir(mode=0o700, parents=True, exist_ok=True)
            manifest = back_up(target, settings.home_path, database_url(), _objects(settings))
    except BackupError as error:
        refuse(error)
    if json:
        print_json(asdict(manifest))
    else:
        typer.echo(f"{target}: {'whole; ' if verify else ''}{_holds(manifest, target)}")
    if manifest.missing:
        typer.echo(
            f"{len(manifest.missing):,} files that the database names are not there:",
            err=True,
        )
        for key in manifest.missing[:_MOST_NAMED]:
            typer.echo(f"  {key}", err=True)


def restore(
    source: Source,
    without_digests: Annotated[
        bool,
        typer.Option("--without-digests", help="Take the backup of a version that wrote none."),
    ] = False,
) -> None:
    """Fill an empty state directory, or the empty database of DATABASE_URL, from a backup."""
    from coserve.backup.archive import Archive, BackupError
    from coserve.backup.making import sweep
    from coserve.local.errors import LocalError
    from coserve.local.lock import HomeLock

    settings = read_settings()
    try:
        with Archive(source) as archive:
            _check(archive, without_digests=without_digests)
            lock = HomeLock(settings.home_path, settings.root_url)
            try:
                lock.wait_for_children(10.0)
                sweep(settings.home_path)
                _fill(settings, archive)
            finally:
                lock.release()
            manifest = archive.manifest
    except (BackupError, LocalError) as error:
        refuse(error)
    if manifest.num_files is None:
        typer.echo("Its files are in a store of their own: set COSERVE_FILES_URL as it was.")
    if manifest.missing:
        typer.echo(f"{len(manifest.missing):,} files were lost before this backup.", err=True)
    typer.echo(f"{manifest.num_batches:,} batches are back. Start with: coserve up")


def _check(archive: Archive, *, without_digests: bool) -> None:
    """Read all of a backup before anything is touched. Raises BackupError."""
    from coserve.backup.archive import BackupError

    archive.check()
    if not archive.has_digests and not without_digests:
        raise BackupError(
            f"{archive.path} was made by coserve {archive.manifest.coserve}, whose backups have no "
            "digests: its database and the number and size of its files are right, the files' "
            "contents cannot be checked. `coserve restore --without-digests` takes it as it is."
        )


def _holds(manifest: Manifest, target: Path) -> str:
    num_files = manifest.num_files
    files = "files are in a store of their own" if num_files is None else f"{num_files:,} files"
    return f"{manifest.num_batches:,} batches, {files}, {target.stat().st_size:,} bytes"


def _fill(settings: LocalSettings, archive: Archive) -> None:
    def load(url: str, place: str) -> None:
        from coserve.backup.restoring import restore
        from coserve.local.database import migrate

        restore(archive, settings.home_path, url, _objects(settings), place)
        migrate(url)

    if settings.database_url:
        load(settings.database_url, "The database of DATABASE_URL")
    else:
        asyncio.run(_with_database(settings.home_path, load))


async def _with_database(home: Path, work: Callable[[str, str], None]) -> None:
    """Run the embedded server for as long as `work` needs it."""
    from coserve.local import postgres
    from coserve.local.database import DATABASE_NAME
    from coserve.local.part import Part
    from coserve.local.plans import postgres_plan

    files = await asyncio.to_thread(postgres.prepare, home)
    await asyncio.to_thread(postgres.stop_leftover, files)
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
