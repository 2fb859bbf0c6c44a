"""The docs site as a reader sees it: it builds without a warning, and its pages open without an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import browser, open_page  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site, which is opened from disk."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'rpl-agent[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.nightly
def test_pages_open_from_disk_and_the_api_is_there(site, browser):  # noqa: F811
    with open_page(browser, (site / "index.html").as_uri()) as (page, errors):
        assert "rpl_agent" in page.inner_text("h1")
        assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
        page.goto((site / "reference" / "models.html").as_uri())
        assert page.locator("[id='rpl_agent.core.model.objectives.objective.Objective']").count() == 1
        page.goto((site / "index.html").as_uri())
        page.locator("a[href$='own_env.html']").first.click()
        page.wait_for_url("**/tutorials/own_env.html")
        assert page.locator("pre code").count() >= 4
        page.click("input[name=query]")
        page.keyboard.type("guarantee", delay=20)
        page.wait_for_function("document.querySelector('.md-search-result__meta').textContent.includes('matching')")
        assert page.locator(".md-search-result__item").count() > 3
        assert errors == []
