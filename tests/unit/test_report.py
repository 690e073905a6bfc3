"""The report as a file: what it says, what it escapes, how it is written."""

import argparse
import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

import made_records as made
from hooklaw.errors import OutputError, RecordFileError
from hooklaw.law.trace import Check
from hooklaw.results.summary import sentence
from hooklaw.results.verdict import Outcome
from hooklaw_reports import cli, html, published
from hooklaw_reports import runs as report_runs
from hooklaw_reports.page import build
from hooklaw_reports.payload import MOST_EVENTS, MOST_TEXT, body, value_text
from hooklaw_reports.sheet import parts

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> <!-- \"' & \u2028"


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, str] = {}
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note the element."""
        self.tags.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self._inside = f"{tag} {dict(attrs).get('type', '')}".strip()

    def handle_data(self, data):
        """Note the text."""
        if self._inside:
            self.raw[self._inside] = self.raw.get(self._inside, "") + data
        else:
            self.text += data

    def handle_endtag(self, tag):
        """Leave the element."""
        if tag in {"script", "style"}:
            self._inside = ""


def data_of(text: str):
    """Return the data embedded in a page."""
    return json.loads(Elements(text).raw["script application/json"])


def arguments(*words: str) -> argparse.Namespace:
    """Parse the verb's command line."""
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return parser.parse_args(words)


def big(rules: int, backends: int):
    """Make runs of which a tenth fails, differently on each backend."""
    law = [made.rule(f"chapter-{n % 25}.rule-{n}", f"chapter-{n % 25}") for n in range(rules)]
    runs = []
    for column in range(backends):
        results = [
            made.failed(one.id, detail=f"event 1 should be 'first', was 'second' on backend {column}")
            if (number + column) % 10 == 0
            else made.passed(one.id)
            for number, one in enumerate(law)
        ]
        runs.append(made.run(f"backend-{column}", law, results))
    return runs


class TestSentences:
    """The verdict in words."""

    def test_denominator(self):
        """The sentence gives the rules that hold of those that were judged."""
        eager, compiled, paddle, cuda = made.three()

        assert sentence(eager) == "4 of 4 rules hold, 0 known divergences, 0 regressions"
        assert (
            sentence(compiled)
            == "0 of 4 rules hold, 1 known divergence, 2 regressions (of them 1 crash), 1 allowed difference"
        )
        assert sentence(paddle) == (
            "1 of 3 rules hold, 1 known divergence, 1 regression (of them 1 error), "
            "1 fixed, 1 stale in the expectation file, 1 unsupported and not counted"
        )
        assert sentence(cuda) == "not run: no NVIDIA driver here"

    def test_a_run_that_could_not_run_is_not_zero_percent(self):
        """A backend that did not run has no figure at all."""
        assert build(made.three()).sheets[0].columns[3].tally == "not run"


class TestLanes:
    """Events and values as text."""

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (2.0, "2.0"),
            (0.30000000000000004, "0.3"),
            (1e-9, "1e-09"),
            (float("nan"), "nan"),
            ([1.0, [2, True]], "[1.0, [2, True]]"),
            (None, "None"),
            ("no error", "no error"),
        ],
    )
    def test_values_read_as_in_python(self, value, text):
        """A value reads as Python writes it, a float to six digits."""
        assert value_text(value) == text

    def test_long_ones_are_cut_and_say_so(self):
        """Lanes and failure texts have a greatest length, and say how much is left out."""
        shown = body(made.failed(detail="x" * (MOST_TEXT + 5), observed=made.events(*["first"] * (MOST_EVENTS + 2))))

        assert shown["detail"].endswith("... 5 more characters in the record")
        assert shown["observed"][-1] == ["... 2 more in the record"]

    def test_backends_that_did_the_same_share_an_entry(self):
        """What several backends did alike stands in the file once, the worst first."""
        rules = [made.rule()]
        runs = [made.run("a", rules, [made.passed()]), made.run("b", rules, [made.failed()])]
        runs.append(made.run("c", rules, [made.passed()]))

        groups = data_of(made.report(runs))["sheets"]["rules"]["rules"]["order.first"]["groups"]

        assert [(group["word"], group["on"]) for group in groups] == [("fail", [1]), ("pass", [0, 2])]


class TestPage:
    """What the page says before any script runs."""

    def test_every_cell_has_its_word(self):
        """Each outcome stands in the matrix as a word, not only as a colour or a sign."""
        text = made.report(made.three())

        for word in ("known fail", "fixed", "fail", "known timeout", "crash", "differs", "error"):
            assert re.search(rf'<td class="\w+"><b>\S {word}</b>', text), word
        for word in ("pass", "unsupported", "not-run"):
            assert re.search(rf'<td class="\w+">{word}</td>', text), word

    def test_chapters(self):
        """Rules stand under their chapters, each with a tally for every backend that was judged there."""
        chapters = build(made.three()).sheets[0].chapters

        assert [(one.title, one.tallies) for one in chapters] == [
            ("Order", ["2/2", "0/2", "1/2", ""]),
            ("Unpack and pack", ["2/2", "0/2", "0/1", ""]),
        ]

    def test_backends_disagree(self):
        """A rule on which judged backends came out differently is marked, one that only some could run is not."""
        rules = [made.rule()]
        lacking = made.failed(outcome=Outcome.UNSUPPORTED)
        agree = [made.run("a", rules, [made.passed()]), made.run("b", rules, [lacking])]

        assert [row.disagree for chapter in build(made.three()).sheets[0].chapters for row in chapter.rows] == [
            True
        ] * 4
        assert not build(agree).sheets[0].chapters[0].rows[0].disagree

    def test_what_to_do_is_named(self):
        """Regressions, fixed and stale entries are named with their place."""
        text = Elements(made.report(made.three())).text

        for part in ("order.gone", "matches no rule", "expectations/paddle.toml:3", "expectations/torch-eager.toml:7"):
            assert part in text
        assert "one process, two replicas on the CPU" in text
        assert "hooklaw run --backend paddle" in text

    def test_places_name_no_home(self):
        """An entry is placed by folder and file, wherever these lie."""
        assert report_runs.place("/home/someone/law/expectations/paddle.toml", 3) == "expectations/paddle.toml:3"
        assert report_runs.place("", 0) == ""

    def test_two_runs_of_one_backend(self):
        """Two runs of one backend are told apart by their files, which the heading counts."""
        runs = [made.run("a", [made.rule()], [made.passed()]) for _ in range(2)]
        runs[1].file = "other.jsonl"

        assert [column.name for column in build(runs).sheets[0].columns] == ["a (a.jsonl)", "a (other.jsonl)"]
        assert build(runs).headline == "1 rule, 1 backend in 2 runs"

    @pytest.mark.parametrize("versions", [("2.13.0", "2.15.0"), ("2.13.0", "2.13.0"), ("", "")])
    def test_two_versions_of_one_backend(self, versions):
        """Of a framework's versions each run is called by its own, as long as that tells them apart."""
        given = [{"torch": one, "python": "3.11.7"} if one else {} for one in versions]
        runs = [made.run("a", [made.rule()], [made.passed()], versions=one) for one in given]
        called = [f"a (torch {one})" for one in versions] if len({*versions}) == 2 else ["a (a.jsonl)"] * 2

        assert [column.name for column in build(runs).sheets[0].columns] == called
        assert [text.split(": ")[0] for text in build(runs).verdicts.split("; ")] == called

    def test_versions_stand_by_number(self):
        """The runs of one backend stand by version, wherever they were given; backends stay as given."""
        given = [("b", "2.10.0"), ("a", "2.15.0"), ("b", "2.4.1+cu121"), ("b", "2.4.0")]
        runs = [made.run(name, [made.rule()], [made.passed()], versions={"torch": one}) for name, one in given]

        called = [column.name for column in build(runs).sheets[0].columns]

        assert called == ["b (torch 2.4.0)", "b (torch 2.4.1+cu121)", "b (torch 2.10.0)", "a"]

    def test_a_name_breaks_where_it_may(self):
        """A long name may break behind a sign or before a capital, but no version's number is taken apart."""
        name = "trl.models:OffBy_load (torch 2.13.0+cu130)"

        assert parts(name) == ["trl.", "models:", "Off", "By_", "load (torch 2.13.0+cu130)"]
        assert parts("eager+compiled-autograd") == ["eager+", "compiled-", "autograd"]

    def test_two_versions_of_one_packer(self):
        """A packer's own package tells its runs apart, not the machine's Python."""
        given = [{"python": "3.11.7", "torch": "2.13.0", "trl": one} for one in ("1.15.0", "1.16.0")]
        runs = [made.packer("a:b", [made.rule()], [made.passed()], versions=one) for one in given]
        called = [f"a:b (torch 2.13.0, trl {one})" for one in ("1.15.0", "1.16.0")]

        assert [column.name for column in build(runs).sheets[0].columns] == called

    def test_a_rule_that_only_one_run_has(self):
        """A rule that a run was not asked for is not-run there."""
        first, second = made.rule("order.first"), made.rule("order.second")
        runs = [made.run("a", [first], [made.passed()]), made.run("b", [second], [made.passed("order.second")])]

        rows = build(runs).sheets[0].chapters[0].rows

        assert [[mark.word for mark in row.marks] for row in rows] == [["pass", "not-run"], ["not-run", "pass"]]

    def test_outcomes_by_name(self):
        """Each row says in words which runs have which outcome, worst first; quiet outcomes are only counted."""
        rows = [row for chapter in build(made.three()).sheets[0].chapters for row in chapter.rows]
        alone = build([made.run("a", [made.rule()], [made.passed()])]).sheets[0].chapters[0].rows[0]

        assert [(mark.word, on) for mark, on in rows[2].brief] == [
            ("crash", "torch-compile:aot_eager"),
            ("pass", "1"),
            ("unsupported", "1"),
            ("not-run", "1"),
        ]
        assert [(mark.word, on) for mark, on in alone.brief] == [("pass", "")]

    def test_a_rule_that_fails_differently(self):
        """A rule that fails in another way than its entry says is marked so, with what the entry says is seen."""
        entry = msgspec.structs.replace(made.known(), saw=["was no error"])
        page = build([made.run("a", [made.rule()], [made.failed(expectation=entry)])])
        (row,) = page.sheets[0].chapters[0].rows
        text = made.report([made.run("a", [made.rule()], [made.failed(expectation=entry)])])

        assert [(mark.word, mark.alarming) for mark in row.marks] == [("fails differently", True)]
        assert page.sheets[0].columns[0].regressions == ["order.first"]
        assert '"saw":"was no error"' in text.replace(": ", ":")

    def test_nothing_is_called_a_regression(self):
        """A report compares with nothing earlier: a failure without an entry is not expected."""
        text = Elements(made.report(made.three())).text

        assert "regression" not in text.lower()
        assert "0 of 4 rules hold, 1 known divergence, 2 not expected (of them 1 crash), 1 allowed difference" in text

    def test_an_odd_date_is_kept(self):
        """A date that does not read as one stands as it is."""
        usual = made.run("a", [made.rule()], [made.passed()])
        assert report_runs.date(usual) == "2026-11-21 10:22 UTC"
        odd = made.run("a", [made.rule()], [made.passed()], started="once")

        assert report_runs.date(odd) == "once"


class TestSafety:
    """What comes from a backend stays text, and the page stays alone."""

    @pytest.fixture
    def text(self):
        """Return a page made of hostile text alone."""
        rules = [made.rule(statement=HOSTILE, needs=[HOSTILE], mutants=[HOSTILE])]
        result = made.failed(
            detail=HOSTILE,
            where=HOSTILE,
            expected=made.events(HOSTILE),
            observed=made.events((HOSTILE, HOSTILE)),
            checks=[Check(HOSTILE, HOSTILE, HOSTILE, held=True)],
        )
        parts = {"versions": {HOSTILE: HOSTILE}, "notes": {HOSTILE: HOSTILE}, "command": HOSTILE, "selection": HOSTILE}
        runs = [made.run(HOSTILE, rules, [result], **parts), made.run("absent", rules, [], not_run=HOSTILE)]
        return made.report(runs, HOSTILE)

    def test_hostile_text_makes_no_element(self, text):
        """Markup in any field of a record is shown, never obeyed."""
        tags = [tag for tag, _ in Elements(text).tags]

        assert tags.count("script") == 2
        assert "img" not in tags

    def test_hostile_text_survives(self, text):
        """Escaping loses nothing."""
        group = data_of(text)["sheets"]["rules"]["rules"]["order.first"]["groups"][0]

        assert group["detail"] == group["where"] == group["expected"][0][0] == HOSTILE
        assert Elements(text).text.count("alert(1)") >= 5

    def test_the_network_is_never_asked(self, text):
        """Nothing is loaded from anywhere, and the policy would forbid it."""
        seen = Elements(text)
        policy = next(attrs["content"] for tag, attrs in seen.tags if tag == "meta" and "http-equiv" in attrs)

        assert policy.startswith("default-src 'none';")
        assert "unsafe" not in policy
        assert not [attrs for _, attrs in seen.tags if "src" in attrs or "srcset" in attrs]
        assert [attrs["href"][:5] for tag, attrs in seen.tags if tag == "link"] == ["data:"]
        assert not re.search(r"url\(|@import", seen.raw["style"])

    @pytest.mark.parametrize(("element", "directive"), [("style", "style-src"), ("script", "script-src")])
    def test_hashes_fit(self, text, element, directive):
        """The policy lets exactly this page's own style and script run."""
        found = base64.b64encode(hashlib.sha256(Elements(text).raw[element].encode()).digest()).decode()

        assert f"{directive} 'sha256-{found}'" in text.replace("&#39;", "'")

    def test_same_runs_same_bytes(self):
        """The same records make the same file."""
        assert made.report(made.three()) == made.report(made.three())


def test_size():
    """500 rules on 12 backends, a tenth of them failing, stay below 2 MB."""
    assert len(made.report(big(500, 12)).encode()) <= 2_000_000


class TestVerb:
    """`hooklaw report`."""

    def test_it_writes_and_tells(self, tmp_path, capsys):
        """It writes the file and prints one line with the verdicts, and succeeds even if a rule fails."""
        record = made.write(tmp_path / "r.jsonl", *made.three())
        target = tmp_path / "new" / "report.html"

        code = cli.main(arguments(str(record), "-o", str(target), "--title", "Monday"))

        assert code == 0
        assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert "<h1>Monday</h1>" in target.read_text(encoding="utf-8")
        printed = capsys.readouterr().out
        assert printed.count("\n") == 1
        assert printed.startswith(f"{target}: torch-eager: 4 of 4 rules hold")
        assert [path.name for path in target.parent.iterdir()] == ["report.html"]

    def test_default_output(self):
        """Without -o the report is report.html."""
        assert arguments("r.jsonl").output == Path("report.html")

    def test_a_run_without_its_end_is_refused(self, tmp_path):
        """A cut record makes no report."""
        record = made.write(tmp_path / "r.jsonl", *made.three()[:1])
        record.write_bytes(b"\n".join(record.read_bytes().split(b"\n")[:3]) + b"\n")

        with pytest.raises(RecordFileError, match="run it again"):
            cli.main(arguments(str(record), "-o", str(tmp_path / "report.html")))
        assert not (tmp_path / "report.html").exists()

    def test_a_folder_that_cannot_be_written(self, tmp_path):
        """A path that cannot be written is one sentence."""
        record = made.write(tmp_path / "r.jsonl", *made.three())

        with pytest.raises(OutputError, match=r"cannot write the report to .*; name another file with -o"):
            cli.main(arguments(str(record), "-o", str(record / "report.html")))

    def test_a_failed_write_keeps_the_old_report(self, tmp_path, monkeypatch):
        """The old report stays whole where the new one cannot take its place."""
        target = tmp_path / "report.html"
        target.write_text("old", encoding="utf-8")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(OutputError, match="No space left"):
            html.write(target, "new")
        assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["old"]

    def test_a_record_is_not_overwritten(self, tmp_path):
        """A result file that is named as the report is left alone."""
        record = made.write(tmp_path / "r.jsonl", *made.three())
        before = record.read_bytes()

        with pytest.raises(OutputError, match="one of the result files"):
            cli.main(arguments(str(record), "-o", str(record)))
        assert record.read_bytes() == before


class TestPublished:
    """What is shown of a backend that this machine cannot run."""

    def test_the_last_dated_result_is_shown(self, tmp_path, monkeypatch):
        """The latest published run of the backend stands beside the reason why it was not run here."""
        for day in ("2026-11-20", "2026-11-22", "2026-11-21"):
            run = made.run("torch-eager:cuda", [made.rule()], [made.passed()], started=f"{day}T10:00:00+00:00")
            made.write(tmp_path / f"{day}.jsonl", run)
        monkeypatch.setattr(published, "FOLDER", tmp_path)
        published.published.cache_clear()
        text = made.report(made.three())
        published.published.cache_clear()

        assert "2026-11-22, torch 2.13.0: 1 of 1 rule hold" in text

    def test_what_is_published_is_whole(self):
        """Every published file is a complete run that named what it ran on."""
        runs = published.runs()

        assert {"torch-eager", "torch-compile:aot_eager", "paddle"} <= {run.header.backend for run in runs}
        assert all(run.complete and run.header.versions for run in runs)
