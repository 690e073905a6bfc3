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


@pytest.fixture(scope="module")
def tab(chromium):
    """Return the page in which every test of this file opens its report: a page of its own would take a second."""
    context = chromium.new_context(offline=True)
    context.set_default_timeout(30000)
    return context.new_page()


@pytest.fixture
def view(tab, tmp_path):
    """Return a function that opens the report of some runs; what the page complains about fails the test."""
    complaints, requests = [], []

    def asks(dialog):
        complaints.append(f"dialog {dialog.message}")
        dialog.dismiss()

    listeners = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "dialog": asks,
        "request": lambda request: requests.append(request.url),
    }

    def opened(runs=None, fragment="", *, scheme="light", width=1400, height=900, **media):
        path = tmp_path / "report.html"
        path.write_text(made.report(runs or made.three()), encoding="utf-8")
        _leave(tab)
        tab.emulate_media(**{"media": "screen", "color_scheme": scheme, "forced_colors": "none"} | media)
        tab.set_viewport_size({"width": width, "height": height})
        tab.goto(f"file://{path}{fragment}")
        return tab

    for event, listener in listeners.items():
        tab.on(event, listener)
    yield opened
    _leave(tab)
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)

    assert not complaints
    assert all(url.startswith(("file:", "data:")) for url in requests)


def _leave(tab):
    """Show an empty page, with the pointer where it is at first: a new fragment alone would not load a report again."""
    tab.goto("about:blank")
    tab.mouse.move(0, 0)
