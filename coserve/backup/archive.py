"""The file of a backup: what is in it, and whether that is what was written.

    manifest.json   what it is (`Manifest`)
    database.dump   Postgres' custom format, of one snapshot
    home/…          admin key, secret, profiles
    files/KEY       the objects that snapshot names
    SHA256SUMS      a line for each of the above, as `sha256sum` writes it; the end

It is a tar of regular files, and nothing in it is believed before all of it was read: a cut or a
changed byte, in contents, heads or filling alike, is found by `Archive.check`. Archives of format 1
end without SHA256SUMS: of those only the dump's digest, the number of objects and their bytes are
known, so that whoever restores one has to say so.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from pydantic import TypeAdapter, ValidationError

FORMAT: Final = 2
MANIFEST: Final = "manifest.json"
DUMP: Final = "database.dump"
SUMS: Final = "SHA256SUMS"
_OBJECT: Final = re.compile(r"files/[a-z0-9][a-z0-9_-]{0,127}")
_OWN: Final = re.compile(r"home/(admin-key|secret|profiles/[^./\0][^/\0]*\.json)")
_CHUNK_BYTES: Final = 1 << 20
_MAX_MANIFEST_BYTES: Final = 1 << 28
_BLOCK: Final = tarfile.BLOCKSIZE
_END: Final = bytes(2 * _BLOCK)


class BackupError(RuntimeError):
    """It cannot be made or used; the message says why."""


@dataclass(frozen=True)
class Manifest:
    """What a backup holds.

    Attributes:
        made_at: Unix seconds.
        num_files: Objects in it; none where they are in a store of their own.
        missing: Objects that somebody can still read by the database, and the folder lacks.
    """

    format: int
    coserve: str
    database_schema: str
    made_at: int
    num_files: int | None
    file_bytes: int | None
    missing: list[str]
    num_batches: int


_MANIFEST: Final = TypeAdapter(Manifest)


class Writer:
    """Writes an archive into a new, empty file; `close` makes it whole."""

    def __init__(self, file: IO[bytes], manifest: Manifest) -> None:
        self._file = file
        self._made_at = manifest.made_at
        self._sums: list[str] = []
        self.add(MANIFEST, [json.dumps(asdict(manifest), indent=1).encode()])

    def add(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a member; its size need not be known before."""
        start = self._file.tell()
        self._file.write(_head(name, 0, self._made_at))
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            self._file.write(chunk)
        self._file.write(bytes(-size % _BLOCK))
        end = self._file.tell()
        self._file.seek(start)
        self._file.write(_head(name, size, self._made_at))
        self._file.seek(end)
        self._sums.append(_sum(digest.hexdigest(), name))

    def close(self) -> None:
        """Write the digests and the end."""
        self.add(SUMS, ["".join(self._sums).encode()])
        self._file.write(_END)


class Archive:
    """A backup that is open for reading."""

    def __init__(self, path: Path) -> None:
        """Open it and read its manifest.

        Raises:
            BackupError: It is none, or one of a newer version.
        """
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise BackupError(f"{path} cannot be read: {error.strerror}.") from error
        try:
            self.manifest, self._dump_sha256, self.id = self._read_manifest()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def has_digests(self) -> bool:
        """Whether `check` proves all of it."""
        return self.manifest.format > 1

    def check(self) -> None:
        """Read all of it; after this nothing in it is in doubt that has a digest.

        Raises:
            BackupError: It is cut off, damaged, or holds what no backup has.
        """
        try:
            self._check()
        except (tarfile.TarError, OSError) as error:
            raise self._damaged(str(error)) from error

    def _check(self) -> None:
        sums: list[str] = []
        names: set[str] = set()
        sizes: list[int] = []
        ended = not self.has_digests
        for member, content in self._members():
            if ended and self.has_digests:
                raise self._damaged(f"{member.name} comes after its end")
            if member.name in names or not _is_known(member):
                raise self._damaged(f"it holds {member.name!r}")
            names.add(member.name)
            if member.name == SUMS and self.has_digests:
                self._check_sums("".join(sums), content)
                ended = True
            else:
                sums.append(_sum(_digest(content), member.name))
                if member.name == DUMP and self._dump_sha256 not in (None, sums[-1][:64]):
                    raise self._damaged("its database is not what was written")
            if member.name.startswith("files/"):
                sizes.append(member.size)
            self._check_frame(member)
        if not ended or DUMP not in names:
            raise self._damaged("it ends too early")
        told = (self.manifest.num_files or 0, self.manifest.file_bytes or 0)
        if (len(sizes), sum(sizes)) != told:
            raise self._damaged(
                f"it was made with {told[0]:,} files of {told[1]:,} bytes, and holds "
                f"{len(sizes):,} of {sum(sizes):,}"
            )

    def members(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Name and content of each of `home/…` and `files/…` (the content up to the next step)."""
        for member, content in self._members():
            if _OBJECT.fullmatch(member.name) or _OWN.fullmatch(member.name):
                yield member.name, content

    def dump(self) -> IO[bytes]:
        return next(content for member, content in self._members() if member.name == DUMP)

    def _read_manifest(self) -> tuple[Manifest, str | None, str]:
        try:
            member, content = next(self._members())
            if member.name != MANIFEST or member.size > _MAX_MANIFEST_BYTES:
                raise ValueError(f"it begins with {member.name!r}")
            written = content.read()
            told = json.loads(written)
            number = told["format"]
            if type(number) is not int or number < 1:
                raise ValueError("its format is none that coserve had")
            if number > FORMAT:
                raise BackupError(
                    f"{self.path} was made by coserve {told.get('coserve')}, which is newer: "
                    "restore it there."
                )
            dump_sha256 = told.pop("dump_sha256") if number == 1 else None
            known = {each.name: told[each.name] for each in fields(Manifest)}
            manifest = _MANIFEST.validate_json(json.dumps(known), strict=True)
        except StopIteration:
            raise BackupError(f"{self.path} is no backup of coserve: it is empty.") from None
        except ValidationError as error:
            wrong = ", ".join(sorted({str(one["loc"][0]) for one in error.errors()}))
            raise BackupError(
                f"{self.path} is no backup of coserve: its manifest has a wrong {wrong}."
            ) from error
        except (
            OSError, tarfile.TarError, ValueError, TypeError, KeyError, AttributeError,
            RecursionError,
        ) as error:  # fmt: skip
            raise BackupError(f"{self.path} is no backup of coserve: {error}.") from error
        return manifest, dump_sha256, hashlib.sha256(written).hexdigest()

    def _members(self) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
        """Each member in turn. A damaged head ends a tar for Python's reader, without a word."""
        self._file.seek(0)
        with tarfile.open(fileobj=self._file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # or it holds a million
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise self._damaged(f"{member.name!r} is no regular file")
                yield member, content

    def _check_sums(self, found: str, content: IO[bytes]) -> None:
        stored = content.read().decode(errors="replace")
        if stored != found:
            listed = set(stored.splitlines())
            wrong = [line[66:] for line in found.splitlines() if line not in listed]
            which = ", ".join(wrong[:5]) or "a file is missing"
            raise self._damaged(f"not as they were written: {which}")

    def _check_frame(self, member: tarfile.TarInfo) -> None:
        """What lies around a content: its head, and the filling up to the next block."""
        if not self.has_digests:
            return
        file = self._file
        file.seek(member.offset)
        head = file.read(member.offset_data - member.offset)
        file.seek(member.offset_data + member.size)
        filling = file.read(-member.size % _BLOCK)
        if head != _head(member.name, member.size, int(member.mtime)) or filling.strip(b"\0"):
            raise self._damaged(f"around {member.name}")
        if member.name == SUMS and file.read(len(_END) + 1) != _END:
            raise self._damaged("its end is not what was written")

    def _damaged(self, what: str) -> BackupError:
        return BackupError(f"{self.path} is damaged: {what}. Nothing of it was used.")


def _is_known(member: tarfile.TarInfo) -> bool:
    name = member.name
    return name in (MANIFEST, DUMP, SUMS) or bool(_OBJECT.fullmatch(name) or _OWN.fullmatch(name))


def _head(name: str, size: int, made_at: int) -> bytes:
    """GNU's form: its length does not depend on the size."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, made_at, 0o600
    return member.tobuf(tarfile.GNU_FORMAT)


def _sum(sha256: str, name: str) -> str:
    return f"{sha256}  {name}\n"


def _digest(content: IO[bytes]) -> str:
    digest: Any = hashlib.sha256()
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
    return str(digest.hexdigest())
