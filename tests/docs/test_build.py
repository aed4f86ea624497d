"""The pages as HTML: they build without a network and without a warning, and nothing on them leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import headspan
from headspan.lenses.catalog import lenses
from headspan.result import Lens
from tests.docs.pages import DOCS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docs")]  # built once

NOWHERE = "http://127.0.0.1:9"
PACKAGES = (
    "headspan",
    "headspan.checkpoint",
    "headspan.checkpoint.families",
    "headspan.heads",
    "headspan.subspaces",
    "headspan.distributions",
    "headspan.runtime",
    "headspan.runtime.interventions",
    "headspan.lenses",
    "headspan.statistics",
    "headspan.explorer",
    "headspan.lab",
    "headspan.ledger",
    "headspan.sweeps",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages; the network, were it asked for, would be a closed port."""
    if find_spec("sphinx") is None:
        pytest.skip("sphinx is not installed (pip install 'headspan[docs]')")
    folder = tmp_path_factory.mktemp("html")
    env = {**os.environ, **{f"{kind}_proxy": NOWHERE for kind in ("http", "https", "all")}}
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Links(HTMLParser):
    """Anchors of a page, what it links to, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name == "id":
                self.anchors.add(value)
            elif value and tag == "a" and name == "href":
                self.targets.add(value)
            elif value and (name == "src" or (tag == "link" and name == "href")):
                self.loaded.add(value)


def test_no_link_leads_nowhere(built: Path) -> None:
    pages = {page.resolve(): Links(page) for page in built.rglob("*.html")}
    for page, links in pages.items():
        for target in links.targets:
            path, anchor = urldefrag(unquote(target))
            if ":" in path:
                continue
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.name} links to {target}"
            if anchor and there.suffix == ".html":
                assert anchor in pages[there].anchors, f"{page.name} links to {target}"


def test_nothing_is_loaded_from_elsewhere(built: Path) -> None:
    for page in built.rglob("*.html"):
        assert not {url for url in Links(page).loaded if url.startswith(("http:", "https:", "//"))}, page.name


@pytest.mark.parametrize("lens", lenses().values(), ids=lambda lens: lens.name)
def test_every_variable_of_a_lens_is_in_its_reference(built: Path, lens: Lens) -> None:
    page = (built / "reference" / "lenses.html").read_text(encoding="utf-8")
    section = page.partition(f'id="lens-{lens.name}"')[2].partition('id="lens-')[0]
    assert f"headspan.{lens.name}" in section
    for variables in lens.schema.nodes.values():
        for variable in variables:
            assert f">{variable.name}<" in section, f"{lens.name}: {variable.name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(built: Path, package: str) -> None:
    head, _, packed = (built / "objects.inv").read_bytes().partition(b"zlib.\n")
    assert b"headspan" in head
    documented = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}
    module = import_module(package)
    offered_in_front = {id(getattr(headspan, name)) for name in dir(headspan)}
    for name in getattr(module, "__all__", dir(headspan) if module is headspan else ()):
        found = getattr(module, name)
        own = f"{getattr(found, '__module__', package)}.{getattr(found, '__qualname__', name)}"
        elsewhere = package != "headspan" and id(found) in offered_in_front
        known = name.startswith("__") or elsewhere or {f"{package}.{name}", own} & documented
        assert known, f"{package}.{name} is not documented"
