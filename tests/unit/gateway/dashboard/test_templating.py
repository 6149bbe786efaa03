from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from gateway.dashboard.templating import ENVIRONMENT, HERE, STATIC, asset_version

TEMPLATES = sorted((HERE / "templates").rglob("*.html"))


def test_templates_escape_and_refuse_unknown_names() -> None:
    assert ENVIRONMENT.from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    with pytest.raises(UndefinedError):
        ENVIRONMENT.from_string("{{ nobody }}").render()


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_no_template_has_anything_that_the_policy_forbids(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text)


def test_vendored_files_are_what_their_list_says() -> None:
    vendor = STATIC / "vendor"
    listed = dict(
        re.findall(
            r"^\| (\S+\.(?:js|css|woff2)) .* ([0-9a-f]{64}) \|$",
            (vendor / "VENDOR.md").read_text(),
            re.M,
        )
    )
    present = {path.name for path in vendor.iterdir() if path.suffix in (".js", ".css", ".woff2")}
    assert set(listed) == present
    for name, digest in listed.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest


def test_an_asset_s_address_follows_its_content() -> None:
    content = (STATIC / "app.css").read_bytes()
    assert asset_version("app.css") == hashlib.sha256(content).hexdigest()[:12]
