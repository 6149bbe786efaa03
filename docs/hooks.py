"""What the site adds to `docs/`: the pages above it and the results they link to.

Pages are written for the repository, where a link is a path between files. A link that leaves
`docs/` leads to a copy in the site; one that leads nowhere is left, and ends a strict build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
_OWN_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
_INDEX = {"README.md": "index.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not under `docs/`."""
    for name in _OWN_PAGES:
        files.append(File.generated(config, _in_site(name), abs_src_path=str(ROOT / name)))
    linked = {name for page in _sources() for name in _outside(page)}
    for name in sorted(linked - set(_OWN_PAGES)):
        if (ROOT / name).is_file():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, **given: Any) -> str:
    """Lead links between files of the repository to their pages of the site.

    Pages for research are left out of the site's search.
    """
    del given
    if any(section.title == "Research" for section in page.ancestors):
        page.meta["search"] = {"exclude": True}
    where = page.file.src_uri
    source = next((name for name in _OWN_PAGES if _in_site(name) == where), f"docs/{where}")
    if where.startswith("bench/"):
        source = where

    def moved(found: re.Match[str]) -> str:
        target = _in_repository(source, found[2])
        if not (ROOT / target).exists():
            return found[0]
        path = os.path.relpath(_in_site(target), Path(where).parent)
        return f"{found[1]}{path}{found[3] or ''}{found[4]}"

    return _LINK.sub(moved, markdown)


def _in_repository(source: str, link: str) -> str:
    return os.path.normpath(Path(source).parent / link)


def _in_site(name: str) -> str:
    """Where a file of the repository is in the site."""
    return _INDEX.get(name) or name.removeprefix("docs/")


def _sources() -> list[Path]:
    return [*(ROOT / name for name in _OWN_PAGES), *(ROOT / "docs").rglob("*.md")]


def _outside(page: Path) -> set[str]:
    """Files outside of `docs/` that a page links to."""
    source = page.relative_to(ROOT).as_posix()
    names = {_in_repository(source, found[2]) for found in _LINK.finditer(page.read_text())}
    return {name for name in names if not name.startswith("docs/")}
