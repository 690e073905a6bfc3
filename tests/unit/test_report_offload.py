"""The report's pages on offloading and on packers, before any script runs."""

import json

import pytest
from msgspec.structs import replace
from test_report import HOSTILE, Elements, arguments, big, data_of

import made_records as made
from hooklaw.errors import RecordFileError
from hooklaw.law.rule import Level
from hooklaw.results import figures
from hooklaw.results.verdict import Outcome
from hooklaw_reports import cli
from hooklaw_reports.answers import answers, pick
from hooklaw_reports.page import build
from hooklaw_reports.runs import sentence, unfinished

WHERE = "conv on NVIDIA H200"
DISK_RAW = "hooklaw_backends.offload.disk:DiskRaw"
SAVE_ON_CPU = "torch.autograd.graph:save_on_cpu"


def ascii_only(text):
    """Return a text with plain letters for its signs."""
    return text.replace(figures.TIMES, "x").replace(figures.ABSENT, "-")


def offload_page(runs):
    """Return the offload page of these runs."""
    return build(runs).offload


def only_chart(*cells):
    """Return the one chart of a run with these cells."""
    (chart,) = offload_page([made.measured(*cells)]).charts
    return chart


def said(cells, budget):
    """Return what the page answers for so many GB."""
    return ascii_only(pick(answers(cells, WHERE), budget * made.GB).sentence(f"{budget} GB"))


def packer(name=SAVE_ON_CPU, *, broken=True, device="cpu"):
    """Make the run of a packer of which one property is broken, or none."""
    law = [made.rule("packer.values.same", "packer-values"), made.rule("packer.in-place.output", "packer-in-place")]
    second = made.failed("packer.in-place.output", program="import torch\n") if broken else made.passed(law[1].id)
    return made.packer(name, law, [made.passed("packer.values.same"), second], device=device)


class TestFigures:
    """Figures with their units."""

    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (0, figures.ABSENT),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (48_230_000_000, "48.2 GB"),
            (999_900_000, "1.00 GB"),
        ],
    )
    def test_sizes(self, count, text):
        """Bytes stand to three digits in the unit that suits them."""
        assert figures.size(count) == text

    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (4_610_000_000, "4.61 GB"),
            (4_610_000_001, "4.62 GB"),
            (999_900_000, "1.00 GB"),
            (12, "12.0 B"),
            (0, figures.ABSENT),
        ],
    )
    def test_what_is_needed_is_rounded_up(self, count, text):
        """The memory that is named as needed is enough."""
        assert figures.size_up(count) == text

    def test_the_rest(self):
        """Times, rates, ratios and errors have their units and digits too."""
        assert [figures.seconds(one) for one in (1.5, 0.0352, 8e-6, 0)] == [
            "1.50 s",
            "35.2 ms",
            "8.00 µs",
            figures.ABSENT,
        ]
        assert [figures.rate(55e9), figures.rate(0)] == ["55.0 GB/s", figures.ABSENT]
        assert [figures.times(one) for one in (1.524, 0.97, 12.34, 0)] == ["1.52", "0.970", "12.3", figures.ABSENT]
        assert [figures.error(one) for one in (0.0025, 0, 1.2)] == ["2.5e-3", "0", "1.2"]
        assert figures.budget(24.1e9) == ("24", "GB")
        assert figures.digits(0) == "0"


class TestAnswers:
    """Which strategy fits in N GB, and what it costs."""

    def test_the_cheapest_that_fits(self):
        """The sentence names the fastest strategy that fits, its cost with quartiles, and what the plain step needs."""
        assert said(made.strategies(), 5.0) == (
            "In 5.0 GB, conv on NVIDIA H200 runs with checkpoint+async at 1.52 x the plain step's time "
            "(quartiles 1.47 and 1.57) in 4.61 GB; the plain step needs 48.2 GB."
        )

    def test_nothing_fits(self):
        """Where nothing fits, the least that would is named."""
        assert said(made.strategies(), 2) == (
            "Nothing here fits in 2 GB for conv on NVIDIA H200; the least is "
            "checkpoint+async at 1.52 x the plain step's time (quartiles 1.47 and 1.57) in 4.61 GB."
        )

    def test_the_plain_step_fits(self):
        """Where the plain step fits nothing need be done, and what is faster beyond doubt is named."""
        cells = [made.cell(), made.cell("bold", 40, 0.8)]

        assert said([made.cell()], 50) == "In 50 GB, conv on NVIDIA H200 fits as it is: the plain step needs 48.2 GB."
        assert said(cells, 50).endswith(
            "needs 48.2 GB. Another is faster still: bold at 0.800 x (quartiles 0.776 and 0.824) in 40.0 GB."
        )
        assert "faster" not in said([made.cell(), made.cell("noise", 40, 0.99)], 50)

    def test_a_lossy_one_that_is_cheaper(self):
        """A lossy strategy comes second, and only where it is cheaper."""
        assert said(made.strategies(), 15).endswith(
            "A lossy one is cheaper: int8 at 1.31 x (quartiles 1.27 and 1.35) in 14.4 GB."
        )
        assert "lossy" not in said(made.strategies(), 14)

    def test_lawful_before_cheap(self):
        """A strategy that breaks the law of packers is named only where no other fits, and is named as such."""
        cells = [made.cell(), made.cell("wrong", 5, 1.1, lawful=False), made.cell("right", 6, 2.0)]

        assert "runs with right at 2.00" in said(cells, 6)
        assert "quartiles 1.07 and 1.13) in 5.00 GB, though it breaks the packer law;" in said(cells, 5)

    def test_only_a_lossy_one_fits(self):
        """Where only a lossy strategy fits, the first sentence says that it is lossy."""
        cells = [made.cell(), made.cell("int8", 5, 1.3, lossless=False)]

        assert said(cells, 5).endswith("in 5.00 GB, though it is lossy; the plain step needs 48.2 GB.")

    def test_without_a_plain_step(self):
        """A chart without the plain step, or without any figure, still has an answer."""
        assert said([made.cell("async", 5, 2.0)], 6).endswith("(quartiles 1.94 and 2.06) in 5.00 GB.")
        assert said([made.cell(outcome=Outcome.CRASH)], 6) == (
            "In 6 GB, nothing can be said of conv on NVIDIA H200: no strategy came through."
        )

    def test_the_page_asks_for_half(self):
        """Before any script runs the answer is for half of what the plain step needs."""
        chart = only_chart(*made.strategies())
        text = Elements(made.report([made.measured(*made.strategies())])).text

        assert chart.half == ("24", "GB")
        assert ascii_only(chart.sentence).startswith(
            "In 24 GB, conv on NVIDIA H200 runs with checkpoint at 1.39 x the plain step"
        )
        assert chart.sentence in text
        assert only_chart(made.cell(outcome=Outcome.ERROR, peak=0)).half == ("1", "GB")


class TestCharts:
    """What stands where."""

    def test_frontiers(self):
        """The frontier joins what no other beats; lossy strategies have their own, unlawful and failed ones none."""
        cells = [*made.strategies(), made.cell("bargain", 1, 0.5, lawful=False)]
        points = only_chart(*cells).points

        on = {name: [one.cell.strategy for one in points if one.line == name] for name in ("lossless", "lossy")}
        assert on == {
            "lossless": ["checkpoint+async", "checkpoint", "fraction:0.3+async", "none"],
            "lossy": ["checkpoint+bf16", "int8", "bf16"],
        }

    def test_words(self):
        """Every strategy has its state in words, and a shape that says the same."""
        points = {one.cell.strategy: (one.state.word, one.shape) for one in only_chart(*made.strategies()).points}

        assert points["none"] == ("the plain step, on the frontier", "plain")
        assert points["async"] == ("beaten by checkpoint+async", "lossless")
        assert points["int8"] == ("on the lossy frontier", "lossy")
        assert points["save-on-cpu"] == ("breaks the packer law", "lossless unlawful")
        assert points["disk-save"][0] == "wrong gradients"
        assert points["my_package:Offload"][0] == "timeout"

    def test_a_lossy_strategy_beaten(self):
        """A lossy strategy that a lossless one beats is lossy still."""
        cells = [made.cell(), made.cell("better", 5, 1.1), made.cell("worse", 6, 1.2, lossless=False)]
        cells.append(made.cell("worst", 7, 1.3, lossless=False))
        points = {one.cell.strategy: one.state.word for one in only_chart(*cells).points}

        assert points == {
            "better": "on the frontier",
            "worse": "on the lossy frontier",
            "worst": "lossy, beaten by better",
            "none": "the plain step, on the frontier",
        }

    def test_a_strategy_that_could_not_run(self):
        """A strategy that this machine could not run is listed with the reason and not as a failure."""
        cells = [made.cell(), made.cell("async", 0, 0, outcome=Outcome.NOT_RUN, detail="it needs CUDA")]

        (point,) = only_chart(*cells).marked
        assert (point.state.tone, point.state.word, point.cell.detail) == ("unrun", "not-run", "it needs CUDA")

    def test_noise_of_the_plain_step(self):
        """The plain step counts as exactly 1, so it beats a strategy that only adds hooks."""
        cells = [made.cell("none", 48, 1.05), made.cell("hook-only", 48, 1.02)]

        assert [one.state.word for one in only_chart(*cells).points if one.shape == "lossless"] == [
            "beaten by the plain step"
        ]

    def test_marked_ones_are_listed_with_their_reason(self):
        """What has no place in the chart, or none without a word, is listed with the reason."""
        text = Elements(made.report([made.measured(*made.strategies())])).text

        marked = [one.cell.strategy for one in only_chart(*made.strategies()).marked]
        assert set(marked) == {"save-on-cpu", "disk-save", "my_package:Offload"}
        for reason in ("turns the check for in-place changes off", "by 1.2", "no end after 120 s, in round 1"):
            assert reason in text

    def test_the_table_has_every_figure(self):
        """The table gives the figures of the chart and the rest, with units; what was not measured is a dash."""
        text = made.report([made.measured(*made.strategies())])
        found = text[text.index('<tr data-cell="async">') :].partition("</tr>")[0]
        row = Elements(found.replace("<", " <")).text.split()

        assert " ".join(row) == (
            "async 2.90 2.81 to 2.99 6.30 GB beaten by checkpoint+async kept 91% 0 "
            "580 ms 203 ms 377 ms 5.67 GB 45.0 GB 44.0 GB"
        )
        late = text[text.index('<tr data-cell="my_package:Offload">') :].partition("</tr>")[0]
        assert late.count(f">{figures.ABSENT}<") == 11
        assert "data-v" not in late.replace('data-v="1"', "")

    def test_an_opened_row_has_every_figure(self):
        """What the page draws knows each figure that was measured, and buffers that went astray."""
        run = made.measured(made.cell(), made.cell("async", 5, 2, buffers_equal=False, reserved=made.GB, error64=1e-6))
        points = data_of(made.report([run]))["charts"]["conv-on-nvidia-h200"]["points"]
        facts = dict(points[0]["facts"])

        assert (facts["Reserved by CUDA"], facts["Error against float64"]) == ("1.00 GB", "1.0e-6")
        assert facts["Buffers"] == "differ from the plain step's"
        assert "Host memory or file" not in facts


class TestRuns:
    """Several benchmark runs, and what else the report holds."""

    def test_only_cells(self):
        """A report of cells alone has no matrix, and no page to choose."""
        seen = build([made.measured(*made.strategies())])
        tags = [attrs.get("class") for tag, attrs in Elements(made.report([made.measured(made.cell())])).tags]

        assert (seen.sheets, seen.headline) == ([], "14 offload cells")
        assert not {"matrix", "heads"} & set(tags)
        assert "nav" not in [tag for tag, _ in Elements(made.report([made.measured(made.cell())])).tags]

    def test_no_cells(self):
        """A report without cells has no such page."""
        assert build(made.three()).offload is None
        assert [tab.kind.name for tab in build(made.three()).tabs] == ["rules"]

    def test_cells_are_no_column(self):
        """A benchmark stands among the verdicts with a link to its page, not in the matrix."""
        seen = build([*made.three(), made.measured(*made.strategies())])
        text = Elements(made.report([*made.three(), made.measured(*made.strategies())])).text

        assert [column.name for column in seen.sheets[0].columns] == [run.header.backend for run in made.three()]
        assert "12 of 14 cells measured in 1 workload, 2 marked, 1 against the packer law" in text
        assert seen.headline == "4 rules, 4 backends; 14 offload cells"

    def test_two_machines(self):
        """Two processors of which both are called cpu are told apart by their names."""
        cells = [made.cell(device="cpu")]
        runs = [
            made.measured(*cells, device="cpu", versions={"cpu": "AMD EPYC"}),
            made.measured(*cells, device="cpu", versions={"cpu": "Xeon"}),
        ]

        assert [chart.title for chart in offload_page(runs).charts] == ["conv on cpu (AMD EPYC)", "conv on cpu (Xeon)"]
        assert [chart.title for chart in offload_page(runs[:1]).charts] == ["conv on cpu"]

    def test_the_later_run_speaks(self):
        """Of one cell measured twice the later run is shown, in whichever order the files are named, with a note."""
        old = made.measured(made.cell(), made.cell("async", 6, 3.0), started="2026-11-20T10:00:00+00:00")
        new = made.measured(made.cell("async", 6, 2.0), started="2026-11-21T10:00:00+00:00")
        new.file = "new.jsonl"

        for runs in ([old, new], [new, old]):
            (chart,) = offload_page(runs).charts
            assert {one.cell.strategy: one.cell.ratio for one in chart.points} == {"none": 1.0, "async": 2.0}
            assert chart.notes == [
                "measured twice, in bench-cuda.jsonl and new.jsonl: 1 of these cells; shown is the later run, new.jsonl"
            ]

    def test_charts_of_one_name_have_their_own_address(self):
        """Settings that read alike in an address are numbered."""
        cells = [made.cell(setting="fp32"), made.cell(setting="FP32")]

        slugs = [chart.slug for chart in offload_page([made.measured(*cells)]).charts]
        assert slugs == ["conv-on-nvidia-h200-fp32", "conv-on-nvidia-h200-fp32-2"]

    def test_a_benchmark_that_could_not_run(self):
        """A benchmark that found no device says so and draws nothing."""
        run = made.measured(not_run="no NVIDIA driver here")
        seen = offload_page([run])

        assert (seen.charts, seen.summary) == ([], "cuda: not run: no NVIDIA driver here")
        assert "no NVIDIA driver here" in Elements(made.report([run])).text

    @pytest.mark.parametrize(
        ("strategy", "name"),
        [
            ("checkpoint+disk-raw", "hooklaw_backends.offload.disk:DiskRaw"),
            ("fraction:0.3+async", "hooklaw_backends.offload.asynchronous:Async"),
            ("checkpoint+my_package:Offload", "my_package:Offload"),
        ],
    )
    def test_the_verdict_of_the_law(self, strategy, name):
        """A strategy leads to what was found of its packer, where the report has it."""
        cell = made.cell(strategy, 5, 2, lawful=False)
        runs = [made.measured(cell), packer(name)]
        points = offload_page(runs).charts[0].points

        assert points[0].law.address == f"#page=packers&on={name}&outcome=fail"
        assert f'href="{points[0].law.address.replace("&", "&amp;")}"' in made.report(
            [made.measured(cell), packer(name)]
        )

    def test_an_old_record_does_not_say_whose_save_on_cpu_it_measured(self):
        """Before cells named their packers, a repaired one went by the name of torch's, so neither verdict counts."""
        cells = made.measured(made.cell("save-on-cpu", 5, 2))
        (point,) = offload_page([cells, packer(SAVE_ON_CPU)]).charts[0].points

        assert point.law.text == "not judged"

    def test_no_verdict_of_another(self):
        """A name that only looks like a shipped strategy's leads nowhere."""
        for name in ("my_package:Async", "torch.autograd.graph:save_on_cpu", "odd"):
            assert (
                not offload_page([made.measured(made.cell("async", 5, 2)), packer(name)])
                .charts[0]
                .points[0]
                .law.address
            )

    def test_the_verdict_on_the_same_device(self):
        """Of two verdicts the one of the cell's own kind of device is meant."""
        name = "hooklaw_backends.offload.disk:DiskRaw"
        runs = [packer(name, broken=False), packer(name, device="cuda")]

        for device, law in (("cpu", f"{name}"), ("NVIDIA H200", f"{name}:cuda&outcome=fail")):
            cells = made.measured(made.cell("disk-raw", 5, 2, device=device))
            assert offload_page([cells, *runs]).charts[0].points[0].law.address == f"#page=packers&on={law}"

    @pytest.mark.parametrize("named", ["by its cell", "by its strategy"])
    def test_an_unlawful_packer_is_not_recommended(self, named):
        """A packer that a run in the report finds unsafe is on no frontier and no answer, and the run is named."""
        name, strategy = ("my_package:Own", "own") if named == "by its cell" else (DISK_RAW, "disk-raw")
        cells = [made.cell(), made.cell(strategy, 5, 1.1, packer=name if named == "by its cell" else "")]
        cells.append(made.cell("slow", 5, 9.0))
        (chart,) = offload_page([made.measured(*cells, device="cpu"), packer(name)]).charts
        point = next(one for one in chart.points if one.cell.strategy == strategy)

        assert (point.state.word, point.shape, point.line) == ("breaks the packer law", "lossless unlawful", "")
        assert point in chart.marked
        assert point.reason == f"1 MUST broken, says the run of {name} on cpu, 2026-11-21 10:22 UTC"
        assert "runs with slow at 9.00" in pick(chart.answers, 6 * made.GB).sentence("6 GB")

    @pytest.mark.parametrize(
        ("lawful", "broken", "text", "verdict"),
        [
            (None, False, "kept", True),
            (False, False, "broken", False),
            (True, True, "1 MUST broken", False),
            (True, None, "kept", True),
            (False, None, "broken", False),
            (None, None, "not judged", None),
        ],
    )
    def test_cell_and_run_both_count(self, lawful, broken, text, verdict):
        """A strategy is unlawful if its cell or the run of its packer says so, and not judged if both are silent."""
        runs = [] if broken is None else [packer(SAVE_ON_CPU, broken=broken)]
        cells = [made.cell("mine", 5, 2, packer=SAVE_ON_CPU, lawful=lawful)]
        (point,) = offload_page([made.measured(*cells), *runs]).charts[0].points

        assert (point.law.text, point.cell.lawful) == (text, verdict)

    def test_a_cell_names_its_packer(self):
        """The packer that a cell names counts, whatever its strategy is called."""
        cells = [made.cell("save-on-cpu", 5, 2, packer="my_package:Repaired")]
        (point,) = offload_page([made.measured(*cells), packer()]).charts[0].points

        assert point.law.text == "not judged"

    def test_a_broken_should_is_lawful(self):
        """A packer that breaks only a SHOULD keeps the law, and the SHOULD is counted."""
        law = [made.rule("packer.values.same", "packer-values", Level.SHOULD)]
        run = made.packer("mine:Nearly", law, [made.failed(law[0].id, expectation=made.known(law[0].id))])
        cells = [made.cell("mine", 5, 2, packer="mine:Nearly")]
        (point,) = offload_page([made.measured(*cells), run]).charts[0].points

        assert (point.law.text, point.cell.lawful) == ("kept, 1 SHOULD broken", True)

    def test_hostile_text(self):
        """Markup in any field of a cell is shown, never obeyed."""
        words = dict.fromkeys(("workload", "device", "setting", "strategy", "text", "detail"), HOSTILE)
        cells = [replace(made.cell(), **words), replace(made.cell(outcome=Outcome.ERROR), **words | {"workload": "w"})]
        text = made.report([made.measured(*cells)])

        assert [tag for tag, _ in Elements(text).tags].count("script") == 2
        assert "img" not in [tag for tag, _ in Elements(text).tags]
        assert next(iter(data_of(text)["charts"].values()))["points"][0]["name"] == HOSTILE


class TestPackers:
    """The page of the packers."""

    def test_they_stand_apart(self):
        """Packers have a matrix of their own, whose rules are properties."""
        rules, packers = build([*made.three(), packer()]).sheets

        assert len(rules.columns) == 4
        assert [column.name for column in packers.columns] == ["torch.autograd.graph:save_on_cpu"]
        assert [chapter.title for chapter in packers.chapters] == ["Values", "In place"]
        assert packers.columns[0].sentence == "1 of 2 properties hold, 0 SHOULDs broken, 1 MUST broken"
        assert build([*made.three(), packer()]).headline == "4 rules, 4 backends; 2 properties, 1 packer"

    def test_the_verdict_is_in_the_words_of_packers(self):
        """A packer is safe, safe with exceptions if a SHOULD is broken, or unsafe."""
        broken, whole = packer(), packer("mine:Whole", broken=False)
        law = [made.rule("packer.values.same", "packer-values", Level.SHOULD)]
        entry = made.failed(law[0].id, expectation=made.known(law[0].id))
        nearly = made.packer("mine:Nearly", law, [entry])

        columns = build([broken, nearly, whole]).sheets[0].columns

        assert {column.name: column.mark.word for column in columns} == {
            "torch.autograd.graph:save_on_cpu": "unsafe",
            "mine:Nearly": "safe with exceptions",
            "mine:Whole": "safe",
        }

    def test_the_first_screen_counts_them(self):
        """The first page counts the verdicts on packers, with a link; a tab has a mark where a person should look."""
        runs = [*made.three(), packer(), packer("mine:Whole", broken=False), made.measured(*made.strategies())]
        rules, packers, offload = build(runs).tabs
        text = made.report(runs)

        assert packers.summary == "2 packers: 1 safe, 1 unsafe"
        assert f'<a href="#page=packers">{packers.summary}</a>' in text
        assert [tab.worst.word for tab in (rules, packers, offload)] == ["1 broken", "1 unsafe", "3 marked"]
        nav = text[text.index("<nav") : text.index("</nav>")]
        assert " ".join(Elements(nav).text.split()) == "Rules ! 1 broken Packers ✗ 1 unsafe Offload ! 3 marked"

    def test_the_worst_come_first(self):
        """Verdicts are listed worst first; the columns of the matrix keep the order of the files."""
        (sheet,) = build([packer("mine:Whole", broken=False), packer()]).sheets

        assert [column.mark.word for column in sheet.verdicts] == ["unsafe", "safe"]
        assert [column.label for column in sheet.columns] == ["Whole", "save_on_cpu"]

    def test_labels_tell_packers_apart(self):
        """A packer's label above its column leaves out the module, unless two would then be called the same."""
        (sheet,) = build([packer("mine:Own"), packer("yours:Own")]).sheets

        assert [column.label for column in sheet.columns] == ["mine:Own", "yours:Own"]

    def test_the_program(self):
        """The program that shows what is broken is there to be shown."""
        groups = data_of(made.report([packer()]))["sheets"]["packers"]["rules"]["packer.in-place.output"]["groups"]

        assert groups[0]["program"] == "import torch\n"


class TestVerb:
    """`hooklaw report` with any mix."""

    def test_a_mix(self, tmp_path, capsys):
        """Benchmarks, packers and rules make one file, and one line that tells of each."""
        files = [
            made.write(tmp_path / "bench.jsonl", made.measured(*made.strategies())),
            made.write(tmp_path / "run.jsonl", made.three()[0]),
            made.write(tmp_path / "packer.jsonl", packer()),
        ]
        target = tmp_path / "report.html"

        code = cli.main(arguments(*map(str, files), "-o", str(target)))

        assert code == 0
        assert capsys.readouterr().out == (
            f"{target}: torch-eager: 4 of 4 rules hold, 0 known divergences, 0 not expected; "
            "packer:torch.autograd.graph:save_on_cpu: 1 of 2 properties hold, 0 SHOULDs broken, 1 MUST broken; "
            "bench:cuda: 12 of 14 cells measured in 1 workload, 2 marked, 1 against the packer law\n"
        )
        assert data_of(target.read_text(encoding="utf-8")).keys() == {"looks", "sheets", "charts"}

    def test_a_benchmark_that_did_not_end(self, tmp_path):
        """What was measured until then is shown, and that it is not all."""
        run = made.measured(made.cell(), collected=3, ended=False)
        record = made.write(tmp_path / "b.jsonl", run)
        target = tmp_path / "report.html"

        cli.main(arguments(str(record), "-o", str(target)))

        text = Elements(target.read_text(encoding="utf-8")).text
        assert f"{record}: the run did not end: 1 of 3 cells are measured" in text
        assert sentence(run).endswith("did not end: 1 of 3 cells are measured")

    def test_a_benchmark_that_was_interrupted(self):
        """An interruption is called one."""
        run = made.measured(made.cell(), collected=3)
        run.footer = replace(run.footer, interrupted=True)

        assert unfinished(run) == "the run was interrupted: 1 of 3 cells are measured"

    @pytest.mark.parametrize("kind", ["rules", "nothing measured"])
    def test_what_says_nothing_is_refused(self, tmp_path, kind):
        """Rules that were cut, or a benchmark without a single cell, make no report."""
        bench = made.write(tmp_path / "b.jsonl", made.measured(made.cell()))
        cut = made.three()[0] if kind == "rules" else made.measured(collected=3, device="cpu")
        cut.footer = None
        record = made.write(tmp_path / "cut.jsonl", cut)

        with pytest.raises(RecordFileError, match="did not end"):
            cli.main(arguments(str(bench), str(record), "-o", str(tmp_path / "report.html")))
        assert not (tmp_path / "report.html").exists()


def test_size():
    """A hundred cells more keep 500 rules on 12 backends below 2 MB."""
    cells = [one for number in range(7) for one in made.strategies(workload=f"workload-{number}")]

    text = made.report([*big(500, 12), made.measured(*cells)])

    assert len(text.encode()) <= 2_000_000
    assert len(json.dumps(data_of(text)["charts"])) < 250_000
