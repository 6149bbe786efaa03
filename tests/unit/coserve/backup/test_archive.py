"""Nothing of a backup is believed that is not what was written: any cut, any byte."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from coserve.backup.archive import DUMP, MANIFEST, SUMS, Archive, BackupError, Manifest, Writer

OBJECTS = {"file-a": b"first", "file-" + "b" * 110: b"", "file-c": bytes(1500)}
MANIFEST_OF = Manifest(
    format=2,
    coserve="1.2.3",
    database_schema="0028",
    made_at=1_700_000_000,
    num_files=len(OBJECTS),
    file_bytes=sum(map(len, OBJECTS.values())),
    missing=[],
    num_batches=2,
)


def written(path: Path, manifest: Manifest = MANIFEST_OF) -> Path:
    with path.open("w+b") as file:
        archive = Writer(file, manifest)
        archive.add(DUMP, [b"dump", b"ed"])
        archive.add("home/admin-key", [b"key\n"])
        archive.add("home/profiles/one.json", [b"{}"])
        for key, content in OBJECTS.items():
            archive.add(f"files/{key}", [content])
        archive.close()
    return path


def of_first_format(path: Path, members: Mapping[str, bytes], **changed: object) -> Path:
    """As versions before digests wrote them."""
    told = asdict(replace(MANIFEST_OF, format=1)) | {
        "dump_sha256": hashlib.sha256(members[DUMP]).hexdigest()
    }
    return of_members(path, {MANIFEST: json.dumps(told | changed).encode(), **members})


def of_members(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


FIRST = {DUMP: b"dumped", **{f"files/{key}": content for key, content in OBJECTS.items()}}


def check(path: Path) -> None:
    with Archive(path) as archive:
        archive.check()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    with Archive(written(tmp_path / "a.tar")) as archive:
        archive.check()
        assert archive.manifest == MANIFEST_OF
        assert archive.has_digests
        assert {name: content.read() for name, content in archive.members()} == {
            "home/admin-key": b"key\n",
            "home/profiles/one.json": b"{}",
            **{f"files/{key}": content for key, content in OBJECTS.items()},
        }
        assert archive.dump().read() == b"dumped"


def test_it_is_a_tar_that_sha256sum_can_check(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tar")
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path / "out", filter="data")
    checker = shutil.which("sha256sum")
    assert checker is not None
    subprocess.run([checker, "--check", "--strict", SUMS], cwd=tmp_path / "out", check=True)


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    """Contents, heads, filling, digests and the end."""
    whole = written(tmp_path / "a.tar").read_bytes()
    path = tmp_path / "b.tar"
    path.write_bytes(whole)
    missed = []
    with path.open("r+b") as file:
        for place, byte in enumerate(whole):
            if not byte and place % 32:  # some zeros of many
                continue
            file.seek(place)
            file.write(bytes([byte ^ (1 << place % 8)]))
            file.flush()
            try:
                check(path)
            except BackupError:
                pass
            else:
                missed.append(place)
            file.seek(place)
            file.write(bytes([byte]))
    assert missed == []
    file.close()
    check(path)


def test_every_cut_and_everything_added_is_found(tmp_path: Path) -> None:
    whole = written(tmp_path / "a.tar").read_bytes()
    path = tmp_path / "b.tar"
    for length in {*range(0, len(whole), 100), *range(len(whole) - 1200, len(whole), 16)}:
        path.write_bytes(whole[:length])
        with pytest.raises(BackupError):
            check(path)
    for more in (b"x", bytes(512), whole):
        path.write_bytes(whole + more)
        with pytest.raises(BackupError):
            check(path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tar")
    path.write_bytes(path.read_bytes().replace(b"first", b"worst"))
    with pytest.raises(BackupError, match="damaged: not as they were written: files/file-a"):
        check(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({DUMP: b"changed"}, "its database is not what was written"),
        ({"files/file-a": b"longer"}, "made with 3 files of 1,505 bytes"),
        ({"files/file-z": b""}, "and holds 4 of 1,505"),
        ({"files/../../secret": b""}, "it holds 'files/../../secret'"),
        ({"home/profiles/../x.json": b""}, "it holds"),
        ({"home/profiles/..": b""}, "it holds"),
        ({"/etc/passwd": b""}, "it holds"),
    ],
)
def test_without_digests_what_is_known_is_checked(
    change: dict[str, bytes], said: str, tmp_path: Path
) -> None:
    path = of_first_format(tmp_path / "a.tar", FIRST)
    check(path)
    with Archive(path) as archive:
        assert not archive.has_digests
    told = {"dump_sha256": hashlib.sha256(FIRST[DUMP]).hexdigest()}
    with pytest.raises(BackupError, match=said):
        check(of_first_format(tmp_path / "b.tar", FIRST | change, **told))


def test_half_of_one_without_digests_is_found(tmp_path: Path) -> None:
    whole = of_first_format(tmp_path / "a.tar", FIRST).read_bytes()
    for length in range(0, len(whole), 512):
        (tmp_path / "b.tar").write_bytes(whole[:length])
        if any(whole[length:]):
            with pytest.raises(BackupError):
                check(tmp_path / "b.tar")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_no_link_is_followed(kind: bytes, tmp_path: Path) -> None:
    path = of_first_format(tmp_path / "a.tar", FIRST)
    with tarfile.open(path, "a") as tar:
        member = tarfile.TarInfo("files/file-link")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(BackupError, match="no regular file"):
        check(path)


@pytest.mark.parametrize(
    "content", [b"", b"hello", bytes(10240), json.dumps(asdict(MANIFEST_OF)).encode()]
)
def test_what_is_no_backup(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(BackupError, match="is no backup of coserve"):
        check(path)


@pytest.mark.parametrize("told", [b"[]", b"{", b'{"format": 2}', b'{"format": "x"}', b"\xff"])
def test_a_manifest_that_is_none(told: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo(MANIFEST)
        member.size = len(told)
        tar.addfile(member, io.BytesIO(told))
    with pytest.raises(BackupError, match="no backup"):
        check(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "2"), ("format", 0), ("format", -1), ("format", 1.5), ("format", 1e400),
        ("format", True), ("num_files", "3"), ("file_bytes", None), ("file_bytes", "x"),
        ("missing", None), ("missing", "file-a"), ("missing", [1]), ("made_at", "x"),
        ("database_schema", None), ("num_batches", [[]]), ("coserve", {}),
    ],
)  # fmt: skip
def test_a_manifest_of_other_types_is_none(name: str, value: object, tmp_path: Path) -> None:
    told = asdict(MANIFEST_OF) | {name: value}
    path = of_members(tmp_path / "it", {MANIFEST: json.dumps(told).encode(), **FIRST})
    with pytest.raises(BackupError), Archive(path) as archive:
        archive.check()


def test_a_deep_manifest_is_none(tmp_path: Path) -> None:
    path = of_members(tmp_path / "it", {MANIFEST: b"[" * 100_000})
    with pytest.raises(BackupError, match="is no backup"):
        Archive(path)


def test_one_of_a_newer_version_is_left_to_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tar", replace(MANIFEST_OF, format=3, coserve="9.9"))
    with pytest.raises(BackupError, match=r"made by coserve 9\.9, which is newer"):
        check(path)


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="cannot be read: No such file"):
        Archive(tmp_path / "none.tar")
