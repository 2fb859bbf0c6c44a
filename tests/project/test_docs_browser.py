"""The docs site as a reader sees it: it builds without a warning, and its pages open without an error."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.browser import open_page

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the built site."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'rpl-agent[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.nightly
def test_pages_open_and_the_api_is_there(site):
    with open_page(site) as (page, errors):
        assert "Quick start" in page.inner_text("h1")
        assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
        page.goto(f"{site}/reference/models/")
        assert page.locator("#rpl_agent\\.model\\.objective\\.Objective").count() == 1
        page.goto(f"{site}/tutorials/own_env/")
        assert page.locator("pre code").count() >= 4
        assert errors == []
