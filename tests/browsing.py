"""What tests in a browser share; without a browser they are skipped."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

REQUIRED = os.environ.get("HOOKLAW_BROWSER_TESTS") == "required"
"""CI says so: there a browser that is missing is a failure, not a skip."""
try:
    import playwright.sync_api as playwright
except ImportError:
    if REQUIRED:
        raise
    playwright = None
CHROMIUM = shutil.which("chromium")
AXE = Path(os.environ.get("HOOKLAW_AXE", Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"))
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

needs_chromium = pytest.mark.skipif(
    not (playwright and CHROMIUM) and not REQUIRED, reason="playwright is not installed, or no chromium on the path"
)
needs_axe = pytest.mark.skipif(
    not (AXE.exists() or REQUIRED), reason="no axe.min.js: `npm install axe-core`, or name the file in HOOKLAW_AXE"
)


def fragment(page):
    """Return the fragment of the address."""
    return page.evaluate("decodeURIComponent(location.hash.slice(1))")


@contextmanager
def turning(page):
    """Return when the page shows the address that the block led to: a link and the button back take effect later.

    The block begins when the page has painted: a click on what is still moving is lost. The condition is a function,
    since the page's policy forbids the `eval` of an expression that is not yet true.
    """
    painted(page)
    page.evaluate(
        "window.turned = false; addEventListener('hashchange', () => { window.turned = true }, { once: true })"
    )
    yield
    page.wait_for_function("() => window.turned", polling=100)


def painted(page):
    """Return when the page has painted twice, so that what observes sizes has seen the last ones."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def violations(page):
    """Return what axe finds against WCAG 2 A and AA."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("(tags) => axe.run(document, { runOnly: { type: 'tag', values: tags } })", WCAG)
    return [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]]
