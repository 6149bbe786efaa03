"""A folder is filled once, and again when what decides its contents has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from coserve.setup.stamp import digest, installing, is_current


def test_a_folder_is_filled_until_that_has_ended(tmp_path: Path) -> None:
    folder, wanted = tmp_path / "tool", digest(b"a lock")
    with pytest.raises(FileNotFoundError), installing(folder, wanted):
        (folder / "not made" / "half").touch()
    assert not is_current(folder, wanted)
    with installing(folder, wanted) as is_missing:
        assert is_missing
        assert not [*folder.iterdir()]
    with installing(folder, wanted) as is_missing:
        assert not is_missing


def test_another_lock_or_a_lost_file_fills_it_again(tmp_path: Path) -> None:
    folder, wanted = tmp_path / "tool", digest(b"a lock")
    with installing(folder, wanted):
        (folder / "program").touch()
    for again in (installing(folder, digest(b"b")), installing(folder, wanted, folder / "gone")):
        with again as is_missing:
            assert is_missing
