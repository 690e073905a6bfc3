"""The report in a browser: what its reader sees and does; without chromium, playwright or axe-core it is skipped."""

import pytest

import made_records as made
from browsing import HOSTILE, fragment, needs_axe, needs_chromium, painted, turning, violations
from hooklaw.law.trace import Check

pytestmark = needs_chromium


def rules_shown(page):
    """Return the ids of the rules in sight of the filters."""
    return page.locator("tr[data-rule]:not([hidden])").evaluate_all("rows => rows.map((row) => row.dataset.rule)")


def many(rules=30, backends=2):
    """Make a page long enough to scroll."""
    law = [made.rule(f"chapter-{n % 3}.rule-{n}", f"chapter-{n % 3}") for n in range(rules)]
    names = [f"torch-compile:some_backend_{n}" for n in range(backends)]
    return [made.run(name, law, [made.passed(one.id) for one in law]) for name in names]


class TestFilters:
    """The bar above the matrix."""

    def test_outcome(self, view):
        """An outcome that is ticked leaves the rules that have it, and the count says how many."""
        page = view()
        assert page.locator(".shown output").inner_text() == "4 of 4 rules"

        page.get_by_label("crash 1", exact=False).first.check()

        assert rules_shown(page) == ["unpack.third"]
        assert page.locator(".shown output").inner_text() == "1 of 4 rules"
        assert page.locator(".chapter:not([hidden])").count() == 1

    def test_outcome_on_one_backend(self, view):
        """An outcome can be asked of one backend."""
        page = view()

        page.get_by_label("✓ pass").check()
        page.get_by_label("on backend").select_option("paddle")

        assert rules_shown(page) == []
        page.get_by_label("fixed").check()
        assert rules_shown(page) == ["order.first"]

    def test_level_chapter_and_disagreement(self, view):
        """Levels, chapters and disagreement narrow the rules together."""
        page = view()

        page.get_by_label("Backends disagree").check()
        page.get_by_label("MAY").check()
        assert rules_shown(page) == ["unpack.may"]
        page.get_by_label("Chapter").select_option("order")
        assert rules_shown(page) == []
        page.get_by_role("button", name="Show all").click()
        assert len(rules_shown(page)) == 4

    @pytest.mark.parametrize("query", ["SECOND", "unpack twice", "segmentation fault", "saved-tensor-hooks", "may"])
    def test_text(self, view, query):
        """Every word is looked for in the law, the id, the capabilities, the mutants and the failures."""
        page = view()

        page.get_by_label("Search").fill(query)

        assert 0 < len(rules_shown(page)) < 4


class TestAddress:
    """The fragment of the address."""

    def test_state_is_restored(self, view):
        """A link with filters, a theme and opened rules shows them at once."""
        page = view(fragment="#q=order&outcome=fail&level=SHOULD&theme=dark&rule=order.second")

        assert page.get_by_label("Search").input_value() == "order"
        assert page.get_by_label("✗ fail").first.is_checked()
        assert rules_shown(page) == ["order.second"]
        assert page.locator(".panel").count() == 1
        assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"

    def test_back(self, view):
        """The back button undoes the last step, a reload keeps the state."""
        page = view()
        page.get_by_label("Backends disagree").check()
        page.get_by_label("MAY").check()
        assert fragment(page) == "disagree=yes&level=MAY"

        page.reload()
        assert rules_shown(page) == ["unpack.may"]
        with turning(page):
            page.go_back()

        assert fragment(page) == "disagree=yes"
        assert len(rules_shown(page)) == 4

    def test_back_closes_a_rule(self, view):
        """An opened rule is a step too."""
        page = view()
        page.locator("tr[data-rule='order.first'] button").click()
        assert fragment(page) == "rule=order.first"

        with turning(page):
            page.go_back()

        assert page.locator(".panel").count() == 0

    def test_a_regression_leads_to_its_rule(self, view):
        """The names among the verdicts open their rules."""
        page = view()
        page.locator("summary", has_text="aot_eager").click()

        with turning(page):
            page.get_by_role("link", name="unpack.third").click()

        assert page.locator("tr[data-rule='unpack.third'] button").get_attribute("aria-expanded") == "true"

    def test_unknown_rule(self, view):
        """A link to a rule that the report lacks says so."""
        page = view(fragment="#rule=no.such-rule")

        assert page.locator(".shown output").inner_text() == "4 of 4 rules; this report has no rule no.such-rule"


class TestRule:
    """An opened rule."""

    def test_keyboard(self, view):
        """A rule opens and closes by the keyboard."""
        page = view()
        button = page.locator("tr[data-rule='order.first'] button")

        button.focus()
        page.keyboard.press("Enter")
        assert page.locator(".panel").is_visible()
        page.keyboard.press("Space")

        assert page.locator(".panel").count() == 0

    def test_contents(self, view):
        """It tells the law's sources and needs, and for each backend the result, the entry, the place and the lanes."""
        page = view(fragment="#rule=order.first")
        panel = page.locator(".panel")
        text = panel.inner_text()

        for part in ("MUST", "tensor-hooks", "hooks run in reverse order", "the engine runs them the other way round"):
            assert part in text
        assert "for torch>=2.4, expectations/torch-eager.toml:7" in text
        assert "hooklaw/rules/test_order.py:12" in text
        assert "It holds now, so the entry can go." in text
        assert panel.get_by_role("link", name="issues/1").count() == 2
        links = panel.locator("dd a").evaluate_all("links => links.map((link) => link.href)")
        assert "https://docs.pytorch.org/docs/stable/notes/autograd.html#backward-hooks-execution" in links

    def test_lanes(self, view):
        """The lanes bear their names, mark the first difference, and stand there as a table too."""
        page = view(fragment="#rule=order.second")
        group = page.locator(".group").first
        lanes = group.locator("svg.lanes")

        assert lanes.locator(".lane-name").all_text_contents() == ["expected", "observed"]
        assert lanes.locator(".caption").all_text_contents() == ["▼ first difference"]
        assert lanes.locator(".absent").count() == 1
        assert lanes.get_attribute("aria-label").endswith("first difference at event 2")
        group.locator("summary").click()
        assert group.locator("tr.differs").inner_text().split("\t") == ["2", "second", "no event", "◀ first difference"]

    def test_a_passing_rule_marks_nothing(self, view):
        """Where the rule holds no difference is marked."""
        page = view(many(), "#rule=chapter-0.rule-0")

        assert page.locator("svg.lanes").count() == 1
        assert page.locator(".caption, .band").count() == 0

    def test_an_unexpected_failure(self, view):
        """A failure without an entry is not expected; of a packer, which has no entries, nothing is said."""
        law = [made.rule("packer.in-place.output", "packer-in-place")]
        runs = [*made.three(), made.packer("mine:Own", law, [made.failed(law[0].id)])]

        assert "(not expected: no entry expects it)" in view(runs, "#rule=order.second").locator(".panel").inner_text()
        heading = view(runs, "#rule=packer.in-place.output").locator(".group h3")
        assert heading.inner_text() == "✗ failmine:Own"

    def test_values(self, view):
        """Values stand in a table that says which one differs."""
        page = view(fragment="#rule=unpack.may")

        rows = page.locator(".group", has_text="≠ differs").locator("table", has_text="Values").locator("tbody tr")

        assert [row.split("\t")[-1] for row in rows.all_inner_texts()] == ["✗ differs", "✓ holds"]

    def test_hostile_text(self, view):
        """Text from a backend is shown as text, and only an http address becomes a link."""
        rules = [made.rule(statement=HOSTILE, needs=[HOSTILE], mutants=[HOSTILE])]
        entry = type(made.known())(rule="order.first", outcome=["fail"], reason=HOSTILE, issue="javascript:alert(3)")
        checks = [Check(HOSTILE, HOSTILE, HOSTILE, held=True)]
        lanes = {"expected": made.events(HOSTILE), "observed": made.events((HOSTILE, HOSTILE))}
        result = made.failed(detail=HOSTILE, where=HOSTILE, checks=checks, expectation=entry, **lanes)
        page = view([made.run(HOSTILE, rules, [result], versions={"torch": HOSTILE})], "#rule=order.first")

        assert page.locator(".panel pre").inner_text() == HOSTILE
        assert "javascript:alert(3)" in page.locator(".panel").inner_text()
        assert page.locator("a[href^=javascript], img").count() == 0
        assert page.locator("script").count() == 2


class TestLook:
    """Sizes, colours and paper."""

    @pytest.mark.parametrize("width", [1400, 1000])
    def test_names_stay_whole_while_scrolling(self, view, width):
        """The backends' names stay below the filters, uncut, however many lines the filters take."""
        page = view(many(60), width=width, height=600)

        page.locator("tr[data-rule='chapter-1.rule-31']").scroll_into_view_if_needed()
        bar, heads = page.locator(".bar").bounding_box(), page.locator(".heads").bounding_box()

        assert heads["y"] >= max(0, bar["y"] + bar["height"]) - 1
        assert heads["y"] + heads["height"] < 600

    @pytest.mark.parametrize(("width", "backends"), [(1400, 3), (1400, 12), (1024, 6), (1024, 12), (420, 3), (420, 12)])
    def test_a_linked_rule_is_in_sight(self, view, width, backends):
        """A link to a rule brings it below the filters and the names, and the page never scrolls sideways."""
        page = view(many(60, backends), "#rule=chapter-2.rule-32", width=width, height=700)
        painted(page)

        row = page.locator("tr[data-rule='chapter-2.rule-32'] button").bounding_box()
        bar, heads = page.locator(".bar").bounding_box(), page.locator(".heads").bounding_box()

        assert row["y"] >= 0
        if width > 1000:
            assert 0 <= bar["y"] < bar["y"] + bar["height"] <= heads["y"] + 1
            assert heads["y"] + heads["height"] <= row["y"] + 2
        assert row["y"] + row["height"] < 700
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    def test_names_and_rows_scroll_together(self, view):
        """In a matrix wider than its place the names move with the cells, and the statements stay."""
        page = view(many(60, 12), width=1024, height=700)
        page.locator(".body").evaluate("node => { node.scrollLeft = 250; }")
        page.wait_for_function("() => document.querySelector('.heads').scrollLeft === 250")

        name = page.locator(".heads span").nth(8).bounding_box()
        cell = page.locator("tr[data-rule] td").nth(7).bounding_box()
        assert abs(name["x"] + name["width"] / 2 - cell["x"] - cell["width"] / 2) < 2
        assert page.locator("tr[data-rule] th").first.bounding_box()["x"] >= 0
        page.locator(".heads").evaluate("node => { node.scrollLeft = 0; }")

        page.wait_for_function("() => document.querySelector('.body').scrollLeft === 0")

    def test_words_stay_whole_on_a_phone(self, view):
        """Whether a value holds is said in whole words, however long the values beside it are."""
        long = ["expected", *["[True, False, False, False, True]"] * 2]
        result = made.passed("order.first", checks=[Check(*long, held=True)])
        page = view([made.run("torch-eager", [made.rule("order.first")], [result])], "#rule=order.first", width=400)

        held = page.locator("table", has_text="Values").locator("tbody td").last
        lines = "node => { const all = new Range(); all.selectNodeContents(node); return all.getClientRects().length; }"
        assert held.inner_text() == "✓ holds"
        assert held.evaluate(lines) <= 2

    def test_failures_stand_on_a_phone(self, view):
        """On a phone each statement is followed by its outcomes, the runs that fail by name, all of it in sight."""
        law = [made.rule("order.first"), made.rule("order.second")]
        runs = [made.run(f"backend-{n}", law, [made.passed(one.id) for one in law]) for n in range(7)]
        runs += [made.run(f"broken-{n}", law, [made.passed(law[0].id), made.failed(law[1].id)]) for n in range(2)]
        page = view(runs, width=390)
        row = page.locator("tr[data-rule='order.second']")

        brief = row.locator(".brief")
        assert brief.text_content().strip() == "✗ fail broken-0, broken-1 ✓ 7 pass"
        box = brief.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert page.locator(".heads").is_hidden()

    def test_filters_fold(self, view):
        """Below 1152 px the filters are one button that counts those in use, and opens them."""
        page = view(fragment="#level=MUST&outcome=pass", width=1024)
        button = page.get_by_role("button", name="Filters (2)")

        assert page.get_by_label("SHOULD").is_hidden()
        assert page.locator(".bar").bounding_box()["height"] < 60
        button.click()

        assert page.get_by_label("SHOULD").is_visible()
        assert button.get_attribute("aria-expanded") == "true"

    @pytest.mark.parametrize("width", [320, 360, 390, 414, 740, 800, 826])
    def test_never_wider_than_the_window(self, view, width):
        """No page is wider than the window, whatever its names and versions."""
        law = [made.rule("packer.in-place.output", "packer-in-place")]
        name = "a_rather_long_package.with_many_parts:AndAClassOfSuchAName"
        failed = [made.failed(law[0].id)]
        packers = [made.packer(f"{name}{n}", law, failed, versions={"torch": "2.13.0+" + "x" * 300}) for n in range(9)]
        runs = [*made.three(), *packers]

        for page_name in ("rules", "packers"):
            page = view(runs, f"#page={page_name}&rule=order.first&rule=packer.in-place.output", width=width)
            page.get_by_role("button", name="Filters").click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator(".group h3").evaluate_all(
                "all => all.every((one) => one.scrollWidth <= one.clientWidth)"
            )

    def test_pressed_filters_in_high_contrast(self, view):
        """In forced colours a pressed filter looks pressed."""
        page = view(fragment="#outcome=pass", forced_colors="active")
        ground = "one => getComputedStyle(one).backgroundColor"

        pressed = page.locator(".chip:has(:checked)").evaluate(ground)
        assert pressed not in {page.locator("body").evaluate(ground), "rgba(0, 0, 0, 0)"}

    def test_theme(self, view):
        """The button changes the theme that the system asks for."""
        page = view(scheme="dark")
        ground = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(ground)

        page.get_by_role("button", name="Switch to light").click()

        assert page.evaluate(ground) != before
        assert fragment(page) == "theme=light"

    def test_print(self, view):
        """On paper the filters are gone and every rule is there."""
        page = view(many(60))
        page.emulate_media(media="print")

        assert not page.locator(".bar").is_visible()
        assert page.locator("tr[data-rule='chapter-2.rule-59']").is_visible()


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("runs", "width"), [("three", 1400), ("three", 420), ("many", 900)])
def test_axe(view, scheme, runs, width):
    """Axe finds nothing against WCAG 2 A and AA, with rules opened, tables shown and a filter ticked."""
    shown = made.three() if runs == "three" else many(6, 12)
    first = "order.first&rule=order.second&rule=unpack.may" if runs == "three" else "chapter-0.rule-0"
    page = view(shown, f"#level=MUST&level=SHOULD&level=MAY&rule={first}", scheme=scheme, width=width)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert violations(page) == []
