"""The offload page in a browser: the question, the points, the table, and how the pages hang together."""

import pytest

import made_records as made
from browsing import HOSTILE, fragment, needs_axe, needs_chromium, painted, turning, violations
from hooklaw.results.figures import ABSENT, size_up, times
from hooklaw_reports.answers import answers, pick

pytestmark = needs_chromium
SLUG = "conv-on-nvidia-h200"


def bench(**parts):
    """Make a benchmark's run."""
    return made.measured(*made.strategies(**parts))


def mixed():
    """Make runs of every kind: rules, a packer, two benchmarks."""
    law = [made.rule("packer.in-place.output", "packer-in-place")]
    broken = made.failed("packer.in-place.output", program="import torch\nraise SystemExit\n")
    packer = made.packer("torch.autograd.graph:save_on_cpu", law, [broken])
    small = made.strategies(1e-3, workload="mlp", device="cpu")
    return [*made.three(), packer, bench(), made.measured(*small, device="cpu")]


def chart(page, slug=SLUG):
    """Return the section of one chart."""
    return page.locator(f"[data-chart='{slug}']")


def strategies(locator):
    """Return the names of the strategies in a table, top down."""
    return locator.locator("tr[data-cell]").evaluate_all("rows => rows.map((row) => row.dataset.cell)")


class TestQuestion:
    """Which strategy fits in N GB, and what it costs."""

    def test_half_at_first(self, view):
        """The first question is half of the plain step's peak, and the point that answers it is marked."""
        page = view([bench()])

        assert page.get_by_label("memory, for").input_value() == "24"
        assert page.locator("output").inner_text().startswith("In 24 GB, conv on NVIDIA H200 runs with checkpoint at")
        assert page.locator(".plot .point.chosen").get_attribute("aria-label").startswith("checkpoint, on the frontier")

    @pytest.mark.parametrize("budget", ["0.5", "4.61", "4.62", "7", "10", "14.5", "40", "48.2", "1000", "1e1"])
    def test_any_budget(self, view, budget):
        """For every budget the page says what the records say."""
        page = view([bench()])

        page.get_by_label("memory, for").fill(budget)

        found = answers(made.strategies(), "conv on NVIDIA H200")
        expected = pick(found, float(budget) * made.GB).sentence(f"{budget} GB")
        assert page.locator("output").inner_text() == expected

    def test_unit(self, view):
        """The unit is part of the question."""
        page = view([bench()])

        page.get_by_label("memory, for").fill("5000")
        page.get_by_label("unit, for").select_option("MB")

        assert (
            page.locator("output").inner_text().startswith("In 5000 MB, conv on NVIDIA H200 runs with checkpoint+async")
        )

    @pytest.mark.parametrize("text", ["", "0"])
    def test_no_budget(self, view, text):
        """The page asks again for an amount of memory that it cannot use."""
        page = view([bench()])

        page.get_by_label("memory, for").fill(text)

        assert page.locator("output").inner_text() == "Say how much memory there is: a number above 0."
        assert page.locator(".plot .budget, .plot .chosen").count() == 0

    def test_the_address_remembers(self, view):
        """The question stands in the address, each chart's for itself."""
        page = view([bench(), made.measured(*made.strategies(workload="mlp"), device="x")])
        page.get_by_label("memory, for mlp").fill("5")

        assert fragment(page) == "fits=mlp-on-nvidia-h200:5GB"
        page.reload()

        assert page.get_by_label("memory, for mlp").input_value() == "5"
        assert page.get_by_label("memory, for conv").input_value() == "24"

    def test_an_address_of_another_kind(self, view):
        """A budget in the address that cannot be read is not a budget."""
        page = view([bench()], f"#fits={SLUG}:lots")

        assert page.locator("output").inner_text() == "Say how much memory there is: a number above 0."


class TestPoints:
    """The chart."""

    def test_the_table_is_its_twin(self, view):
        """What the chart draws and what the table says are the same strategies and the same figures."""
        page = view([bench()])
        drawn = page.locator(".plot .point").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
        rows = page.locator("tr[data-cell]").evaluate_all(
            "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText))"
        )

        told = sorted(
            f"{row[0]}, {row[4]}: {row[1]} times the plain step ({row[2]}), peak {row[3]}"
            for row in rows
            if row[1] != ABSENT
        )
        assert sorted(drawn) == told
        assert len(told) == 12

    def test_points_stand_where_their_figures_say(self, view):
        """To the right is more memory, further up more time; whiskers reach from quartile to quartile."""
        page = view([bench()])
        boxes = {
            cell.strategy: page.locator(f".plot .point[aria-label^='{cell.strategy},'] .shape").bounding_box()
            for cell in made.strategies()
            if cell.ratio
        }
        whisker = page.locator(".plot .point[aria-label^='save-on-cpu,'] .whisker").bounding_box()

        centre = {name: (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for name, box in boxes.items()}
        cells = {cell.strategy: cell for cell in made.strategies()}
        for one in centre:
            for other in centre:
                if cells[one].peak > cells[other].peak * 1.1:
                    assert centre[one][0] > centre[other][0]
                if cells[one].ratio > cells[other].ratio * 1.1:
                    assert centre[one][1] < centre[other][1]
        assert whisker["y"] < centre["save-on-cpu"][1] < whisker["y"] + whisker["height"]

    def test_names_do_not_overlap(self, view):
        """No name lies on another or on a point, wide or narrow, and those on the frontier are there."""
        for width in (1280, 400):
            page = view([bench()], width=width)
            boxes = page.locator(".plot .name").evaluate_all(
                "all => all.map((one) => { const box = one.getBBox(); return [box.x, box.y, box.width, box.height] })"
            )

            for number, (x, y, wide, high) in enumerate(boxes):
                for left, top, across, down in boxes[number + 1 :]:
                    apart = x + wide <= left + 1 or left + across <= x + 1 or y + high <= top + 2 or top + down <= y + 2
                    assert apart
            shown = set(page.locator(".plot .name").all_text_contents())
            assert {"checkpoint+async", "checkpoint", "fraction:0.3+async", "none"} <= shown

    def test_shapes(self, view):
        """Lossy, unlawful and plain ones have shapes of their own, which the legend names."""
        page = view([bench()])

        assert page.locator(".plot .point.lossy").count() == 3
        assert page.locator(".plot .point.unlawful .cross").count() == 1
        assert page.locator(".plot .frontier").count() == 2
        legend = page.locator(".legend").inner_text()
        assert legend.split("\n") == [
            "the plain step",
            "on the frontier",
            "beaten by another",
            "lossy: the gradients differ; a broken line joins its own frontier",
            "breaks the packer law, so it is on no frontier",
        ]

    def test_keyboard(self, view):
        """One tab stop leads into the points, arrows along them, Enter to the row, Escape closes the tooltip."""
        page = view([bench()])
        page.get_by_label("unit, for").focus()

        page.keyboard.press("Tab")
        tip = page.locator(".tip")
        assert tip.inner_text().startswith("checkpoint+async on the frontier")
        page.keyboard.press("ArrowRight")
        assert tip.inner_text().startswith("async beaten by checkpoint+async")
        for key, name in (
            ("End", "hook-only"),
            ("ArrowDown", "hook-only"),
            ("Home", "checkpoint+async"),
            ("ArrowLeft", "checkpoint+async"),
        ):
            page.keyboard.press(key)
            assert tip.inner_text().startswith(name)
        assert page.locator(".plot [tabindex='0']").count() == 1
        page.keyboard.press("Escape")
        assert not tip.is_visible()
        page.keyboard.press("Enter")

        assert page.evaluate("document.activeElement.innerText") == "checkpoint+async"
        assert page.locator(".open-cell").inner_text().startswith("what checkpoint+async does")
        assert fragment(page) == f"cell={SLUG}/checkpoint+async"

    def test_tooltip(self, view):
        """Near a point stands what was measured there; it stays while the pointer is on it, and goes with it."""
        page = view([bench()])
        page.locator(".plot").scroll_into_view_if_needed()
        box = page.locator(".plot .point[aria-label^='async,'] .shape").bounding_box()

        page.mouse.move(box["x"] + 3, box["y"] + 3)
        tip = page.locator(".tip")
        for part in ("async", "2.81 to 2.99", "6.30 GB", "45.0 GB", "91%", "50.0 GB/s"):
            assert part in tip.inner_text()
        inner = tip.bounding_box()
        page.mouse.move(inner["x"] + 40, inner["y"] + 40)
        assert tip.is_visible()
        page.mouse.move(5, 5)

        assert not tip.is_visible()

    def test_a_click_opens_the_row(self, view):
        """A point that is clicked leads to its row, a second click leaves the row open, back closes it."""
        page = view([bench()])
        box = page.locator(".plot .point[aria-label^='disk-raw,'] .shape").bounding_box()

        page.mouse.click(box["x"] + 5, box["y"] + 5)
        assert page.locator(".open-cell").count() == 1
        with turning(page):
            page.go_back()

        assert page.locator(".open-cell").count() == 0

    def test_nothing_to_draw(self, view):
        """If no strategy passed, there is no picture, and the page says so."""
        page = view([made.measured(made.cell(outcome="error", ratio=0, peak=0, detail="no room"))])

        assert page.locator(".plot svg").count() == 0
        assert "no strategy came through" in page.locator("output").inner_text()
        assert "no room" in page.locator(".marked").inner_text()


class TestTable:
    """The table below the chart."""

    def test_it_is_sorted_by_what_is_pressed(self, view):
        """A heading sorts by its column, pressed again the other way; what was not measured stands last."""
        page = view([bench()])
        table = page.locator("table.figures")
        cells = {cell.strategy: cell for cell in made.strategies()}

        table.get_by_role("button", name="step").click()
        first = strategies(table)
        assert [cells[name].step for name in first[:-2]] == sorted(cells[name].step for name in first[:-2])
        assert set(first[-2:]) == {"disk-save", "my_package:Offload"}
        table.get_by_role("button", name="step").click()
        assert [cells[name].step for name in strategies(table)[:2]] == [
            cells["save-on-cpu"].step,
            cells["save-on-cpu-pinned"].step,
        ]
        assert set(strategies(table)[-2:]) == {"disk-save", "my_package:Offload"}
        table.get_by_role("button", name="strategy").click()

        assert strategies(table) == sorted(cells)
        assert table.locator("[aria-sort=ascending]").inner_text().startswith("strategy")

    def test_an_opened_row_goes_along(self, view):
        """A row that is open stays open below its strategy, however the table is sorted."""
        page = view([bench()], f"#cell={SLUG}/async")

        page.locator("table.figures").get_by_role("button", name="strategy").click()

        after = page.locator("tr[data-cell='async'] + tr")
        assert after.inner_text().startswith("what async does")
        assert page.locator(".open-cell").count() == 1

    def test_by_keyboard(self, view):
        """A row opens and closes by the keyboard."""
        page = view([bench()])
        page.locator("tr[data-cell='async'] button").focus()

        page.keyboard.press("Enter")
        assert "Ceiling of the medium" in page.locator(".open-cell").inner_text()
        page.keyboard.press("Space")

        assert page.locator(".open-cell").count() == 0

    def test_timeline(self, view):
        """The opened row of a step on CUDA shows when the device computed and copied; other rows have no such bars."""
        timeline = {"compute": [(0.0, 0.5), (0.75, 1.0)], "out": [(0.25, 0.5)]}
        cells = [*made.strategies(), made.cell("drawn", 9, 2, timeline=timeline)]
        page = view([made.measured(*cells)], f"#cell={SLUG}/drawn")
        drawn = page.locator(".timeline")

        assert drawn.inner_text().split("\n")[0] == "What the device did in one step of 1000 ms, under the profiler"
        assert drawn.locator("dt").all_inner_texts() == ["computes", "copies out"]
        assert drawn.locator("dd").all_inner_texts() == ["750 ms", "250 ms"]
        assert drawn.locator(".compute path").get_attribute("d") == "M0 0H500V10H0zM750 0H1000V10H750z"
        page.locator("tr[data-cell='async'] button").click()
        assert page.locator(".open-cell").count() == 2
        assert drawn.count() == 1

    def test_figures_of_the_chart(self, view):
        """Ratio, quartiles and peak stand in the row as the records have them."""
        page = view([bench()])

        for cell in made.strategies()[:12]:
            row = page.locator(f"tr[data-cell='{cell.strategy}'] td").all_inner_texts()
            spread = f"{times(cell.ratio_q1)} to {times(cell.ratio_q3)}"
            assert row[:3] == [times(cell.ratio), spread, size_up(cell.peak)]


class TestPages:
    """Rules, packers and offload in one file."""

    def test_one_at_a_time(self, view):
        """The first page is shown first and leads to the others; back leads back."""
        page = view(mixed())
        assert page.locator("[data-page=rules].page").is_visible()
        assert not page.locator("[data-page=offload].page").is_visible()

        with turning(page):
            page.get_by_role("link", name="cells measured").first.click()
        assert page.locator("[data-page=offload].page").is_visible()
        assert page.locator("nav [aria-current]").inner_text() == "Offload ! 6 marked"
        with turning(page):
            page.go_back()

        assert page.locator("[data-page=rules].page").is_visible()

    def test_the_theme_goes_along(self, view):
        """A theme that was chosen stays on the next page."""
        page = view(mixed(), "#theme=dark")

        with turning(page):
            page.get_by_role("link", name="Packers").click()

        assert fragment(page) == "page=packers&theme=dark"

    def test_a_chart_is_in_sight(self, view):
        """A link to a chart brings it into sight."""
        page = view(mixed(), "#page=offload&chart=mlp-on-cpu")

        assert 0 <= chart(page, "mlp-on-cpu").bounding_box()["y"] < 60

    def test_a_rule_is_found_on_its_page(self, view):
        """A link to a property needs no page, and what is filtered there stays there."""
        page = view(mixed(), "#rule=packer.in-place.output")
        assert page.locator("[data-page=packers].page").is_visible()
        assert page.locator("[data-page=packers] output").inner_text() == "1 of 1 properties"

        page.locator("tr[data-rule='packer.in-place.output'] button").click()

        assert page.locator("[data-page=packers].page").is_visible()

    def test_the_verdict_of_a_packer(self, view):
        """From a strategy that breaks the law a link leads to what its packer breaks."""
        page = view(mixed(), "#page=offload")

        with turning(page):
            chart(page).get_by_role("link", name="its verdict").click()

        shown = page.locator("[data-page=packers] tr[data-rule]:not([hidden])")
        assert shown.evaluate_all("rows => rows.map((row) => row.dataset.rule)") == ["packer.in-place.output"]
        assert page.locator("[data-page=packers] select[name=on]").count() == 0

    def test_the_program(self, view):
        """What a packer breaks comes with its program, and a button that copies it or selects it."""
        page = view(mixed(), "#rule=packer.in-place.output")
        page.get_by_text("A program that shows it, 2 lines").click()
        assert page.locator(".program").inner_text() == "import torch\nraise SystemExit\n"

        button = page.locator(".panel").get_by_role("button")
        button.click()
        page.wait_for_function("text => document.querySelector('.panel button').innerText !== text", arg="Copy")

        assert button.inner_text() in {"Copied", "Selected: press Ctrl+C"}

    def test_hostile_text(self, view):
        """Names and reasons from records are shown as text."""
        cells = [
            made.cell(),
            made.cell(HOSTILE, 5, 2.0, text=HOSTILE),
            made.cell("late", 0, 0, outcome="error", detail=HOSTILE),
        ]
        page = view([made.measured(*cells)], "#cell=" + f"{SLUG}/late")

        page.locator("tr[data-cell]").first.get_by_role("button").click()

        assert HOSTILE in page.locator(".open-cell").first.inner_text()
        assert page.locator("img").count() == 0


class TestLook:
    """Sizes and paper."""

    @pytest.mark.parametrize("width", [1280, 900, 400, 320])
    def test_never_sideways(self, view, width):
        """The page never scrolls sideways; a table wider than its place does, by the keyboard too."""
        page = view(mixed(), "#page=offload", width=width)
        painted(page)

        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert width > 900 or page.locator(".wide").first.get_attribute("tabindex") == "0"

    @pytest.mark.parametrize("width", [1440, 390])
    def test_names_of_strategies_stay(self, view, width):
        """At 1440 px every column of the table is in sight; on a phone the strategy stays while the rest scrolls."""
        page = view([bench()], width=width)
        wide = page.locator(".wide")

        wide.evaluate("node => { node.scrollLeft = 300; }")

        assert width < 1000 or wide.evaluate("node => node.scrollWidth <= node.clientWidth")
        assert page.locator("tr[data-cell='async'] th").bounding_box()["x"] >= 0

    def test_a_window_that_changes(self, view):
        """The chart is drawn again for the room there is."""
        page = view([bench()], width=1280)

        page.set_viewport_size({"width": 500, "height": 800})
        page.wait_for_function("() => document.querySelector('.plot svg').viewBox.baseVal.width < 500")

        assert page.locator(".plot .point").count() == 12

    def test_print(self, view):
        """On paper stand the sentences, charts and tables, without what only a screen can use."""
        page = view([bench()])
        page.emulate_media(media="print")

        assert not page.locator(".ask").is_visible()
        assert page.locator(".answer").is_visible()
        assert page.locator(".plot svg").is_visible()
        assert page.locator("table.figures").is_visible()


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "width"), [("offload", 1280), ("offload", 400), ("packers", 1280)])
def test_axe(view, scheme, name, width):
    """Axe finds nothing against WCAG 2 A and AA, with a row, a tooltip, a rule and its program opened."""
    rule = "&rule=packer.in-place.output" if name == "packers" else f"&cell={SLUG}/async&fits={SLUG}:5GB"
    page = view(mixed(), f"#page={name}{rule}", scheme=scheme, width=width)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    if name == "offload":
        page.locator(".plot .point[tabindex='0']").first.focus()

    assert violations(page) == []
