"""A browser for the tests of this folder, and a report opened in it."""

import pytest

import made_records as made
from browsing import CHROMIUM, playwright


@pytest.fixture(scope="module")
def chromium():
    """Return a browser for all tests of this file; it needs no /dev/shm, which is small in many containers."""
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def view(chromium, tmp_path):
    """Return a function that opens the report of some runs; what the page complains about fails the test."""
    complaints, requests, contexts = [], [], []

    def opened(runs=None, fragment="", *, scheme="light", width=1400, height=900, **options):
        path = tmp_path / "report.html"
        path.write_text(made.report(runs or made.three()), encoding="utf-8")
        context = chromium.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}, offline=True, **options
        )
        context.set_default_timeout(30000)
        page = context.new_page()
        contexts.append(context)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"file://{path}{fragment}")
        return page

    yield opened
    for context in contexts:
        context.close()

    assert not complaints
    assert all(url.startswith(("file:", "data:")) for url in requests)
