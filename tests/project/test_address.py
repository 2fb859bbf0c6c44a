"""One command makes the links of the README absolute and writes the address everywhere it belongs."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("README.md", "pyproject.toml", "CITATION.cff", "mkdocs.yml", "codemeta.json")
address = runpy.run_path(str(ROOT / "docs" / "address.py"))


@pytest.fixture
def project(tmp_path):
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_address_is_written_everywhere_and_can_change(project):
    for url in ("https://example.org/someone/rpl_agent", "https://example.com/other/rpl_agent/"):
        address["main"](url, project)
    url = "https://example.com/other/rpl_agent"
    written = {name: (project / name).read_text() for name in FILES}
    assert not any("example.org" in text for text in written.values())
    assert f"({url}/raw/main/docs/images/hero.png)" in written["README.md"]
    assert f"({url}/blob/main/docs/guarantees.md)" in written["README.md"]
    assert (
        written["pyproject.toml"].count("[project.urls]") == 1 and f'Repository = "{url}"' in written["pyproject.toml"]
    )
    assert f"repository-code: {url}" in written["CITATION.cff"] and f"repo_url: {url}" in written["mkdocs.yml"]
    assert json.loads(written["codemeta.json"])["codeRepository"] == url


def test_relative_links_come_back_for_the_site(project):
    before = (ROOT / "README.md").read_text()
    assert address["relative"](address["absolute"](before, "https://example.org/a/b")) == address["relative"](before)


def test_what_is_no_address_is_refused(project):
    with pytest.raises(SystemExit, match="is not the address of a repository"):
        address["main"]("example.org", project)
