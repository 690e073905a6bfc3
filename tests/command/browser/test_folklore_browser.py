"""The folklore page in a browser: its search, its filters, and the ways from and to a rule."""

import pytest

import made_records as made
from browsing import fragment, needs_axe, needs_chromium, turning, violations

pytestmark = needs_chromium
RULE = "module.full-backward.args"


@pytest.fixture
def folklore(view):
    """Return a function that opens the folklore page of a report with one rule."""

    def opened(rest="", **how):
        law = [made.rule(RULE, "module-backward-hooks")]
        return view([made.run("torch-eager", law, [made.passed(RULE)])], f"#page=folklore{rest}", **how)

    return opened


def shown(page):
    """Return the ids of the claims in sight."""
    return page.locator("li[data-said]:visible").evaluate_all("items => items.map((one) => one.dataset.id)")


def test_verdict(folklore):
    """A verdict that is ticked leaves the claims that have it, and the address says so."""
    page = folklore()
    every = shown(page)

    page.get_by_label("false", exact=False).first.check()

    assert 0 < len(shown(page)) < len(every)
    assert "seed0.module.grad-input-meaning" in shown(page)
    assert fragment(page) == "page=folklore&said=false"
    page.get_by_role("button", name="Show all").click()
    assert shown(page) == every


def test_search(folklore):
    """Words find claims by text, answer, rule and source; what has no claim left is not in sight."""
    page = folklore()

    page.locator(".folklore input[name=q]").fill("grad_output the other way")

    assert shown(page) == ["seed0.module.grad-input-meaning"]
    assert page.locator(".theme:visible").count() == 1
    assert page.locator(".folklore output").inner_text().startswith("1 of ")


def test_from_a_claim_to_its_rule_and_back(folklore):
    """A claim leads to its rule, whose details lead to the claim."""
    page = folklore("&q=seed0.module.grad-input-meaning")

    with turning(page):
        page.locator(f"li:visible a[href='#rule={RULE}']").click()
    with turning(page):
        page.locator(".panel a", has_text="grad_inputs are the inputs").click()

    assert shown(page) == ["seed0.module.grad-input-meaning"]


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
def test_axe(folklore, scheme, width):
    """Axe finds nothing against WCAG 2 A and AA, with the programs shown."""
    page = folklore("&said=false", scheme=scheme, width=width)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert violations(page) == []
