"""The file store: bytes of input, output and error files."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from batch.files.base import ByteRange, FileStore, StoredObject
from batch.files.local import LocalFileStore
from batch.files.memory import MemoryFileStore

__all__ = ["ByteRange", "FileStore", "StoredObject", "file_store_from_url", "make_file_store"]


class FileStoreSettings(Protocol):
    """The two settings a file store is made from."""

    @property
    def home(self) -> Path:
        """State directory (COSERVE_HOME)."""
        ...

    @property
    def files_url(self) -> str | None:
        """Where files live (COSERVE_FILES_URL); none means `home/files`."""
        ...


def make_file_store(settings: FileStoreSettings) -> FileStore:
    """The store the settings name; local disk under the state directory unless they say else."""
    if settings.files_url:
        return file_store_from_url(settings.files_url)
    return LocalFileStore(settings.home.absolute() / "files")


def file_store_from_url(url: str) -> FileStore:
    """The store a setting names: `file:///folder`, `s3://bucket/prefix` or `memory://`.

    Raises:
        ValueError: Any other scheme, or a relative folder.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return LocalFileStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        # Imported here: a native library that local installations never need.
        from batch.files.s3 import ObjectFileStore

        return ObjectFileStore.from_url(url)
    if parts.scheme == "memory":
        return MemoryFileStore()
    raise ValueError("the file store's URL must be file:///folder or s3://bucket/prefix")
