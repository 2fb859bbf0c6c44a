"""A headless Chromium for tests of pages; tests are skipped, with the reason shown, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for all tests of a file; each opens a page with nothing of the others' in it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=FLAGS)
        yield running
        running.close()


@contextmanager
def open_page(browser: Any, address: str, width: int = 1280, dark: bool = False) -> Iterator[tuple[Any, list[str]]]:
    """(page, errors of its console) of a page that has finished loading."""
    size = {"width": width, "height": 900}
    page = browser.new_page(viewport=size, color_scheme="dark" if dark else "light")
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address, timeout=120_000)
    yield page, errors
    page.close()
