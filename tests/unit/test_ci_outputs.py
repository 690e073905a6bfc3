"""What CI reads of a run: JUnit XML, the step summary, annotations and the badge."""

import json
from xml.etree import ElementTree as ET

import pytest

import made_records as made
from hooklaw.cli import summary
from hooklaw.cli.annotations import MOST, annotations
from hooklaw.results.badge import badge
from hooklaw.results.junit import junit
from hooklaw.results.text import printable
from hooklaw.results.verdict import FAILS_AS_DENIED, HOLDS_THOUGH_DENIED, Outcome

HOSTILE = "a\0b\x1b[2J\u202e]]> <b> & \"'|`*\nnext"


def cases(*runs, **broken):
    """Return the cases of the JUnit XML by name."""
    root = ET.fromstring(junit(runs, broken))  # noqa: S314 - our own
    return {case.get("name"): case for case in root.iter("testcase")}


def test_each_case_has_a_name_of_its_own():
    """Names are unique, also of two versions of one backend; each bears the rule's id and what was judged."""
    runs = [*made.three(), made.run("torch-eager", [made.rule()], [made.passed()], versions={"torch": "2.14.0"})]
    root = ET.fromstring(junit(runs))  # noqa: S314 - our own
    names = [case.get("name") for case in root.iter("testcase")]

    assert len(set(names)) == len(names)
    assert {"order.first[torch-eager (torch 2.14.0)]", "order.first[paddle]"} <= set(names)


def test_a_case_bears_level_and_sources():
    """Level, statement and sources with their addresses are properties, and stand in the text of a failure."""
    case = cases(made.three()[1])["order.second[torch-compile:aot_eager]"]
    found = [(each.get("name"), each.get("value")) for each in case.iter("property")]

    assert dict(found)["level"] == "SHOULD"
    assert [value.partition(" http")[0] for name, value in found if name == "source"] == [
        "notes autograd, section backward-hooks-execution",
        "docstring torch.Tensor.register_hook",
    ]
    assert case.find("failure").text.startswith("SHOULD: The hooks of order.second run")


WANTED = {
    "torch-compile:aot_eager": {
        "order.first": "skipped",
        "order.second": "failure",
        "unpack.third": "error",
        "unpack.may": "skipped",
    },
    "paddle": {"order.first": "failure", "order.second": "skipped", "unpack.third": "skipped", "unpack.may": "error"},
    "torch-eager": {"order.first": None, "order.second": None, "unpack.third": None, "unpack.may": None},
}


@pytest.mark.parametrize("run", made.three()[:3], ids=lambda run: run.header.backend)
def test_outcomes(run):
    """A regression is a failure, or an error where the process broke; what is fixed fails; the rest is skipped."""
    found = cases(run)
    kinds = ("failure", "error", "skipped")
    seen = {
        rule: next((kind for kind in kinds if found[f"{rule}[{run.header.backend}]"].find(kind) is not None), None)
        for rule in WANTED[run.header.backend]
    }

    assert seen == WANTED[run.header.backend]


def test_stale_entries_and_lost_results_are_not_green():
    """What makes a run's exit code other than 0 is a case that fails."""
    run = made.three()[2]
    del run.results["order.second"]
    found = cases(run, broken="it does not import")

    assert found["stale entry for order.gone, expectations/paddle.toml:3[paddle]"].find("failure") is not None
    assert found["order.second[paddle]"].find("error").get("message").startswith("no result")
    assert found["load[broken]"].find("error").get("message") == "it does not import"


def test_sums():
    """The attributes of suites and of the whole say how many cases there are of each kind."""
    root = ET.fromstring(junit(made.three()[:3]))  # noqa: S314 - our own

    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "13",
        "failures": "3",
        "errors": "2",
        "skipped": "4",
    }


def test_hostile_text():
    """Characters that XML does not know, and markup, are text."""
    rule = made.rule("order.first", statement=HOSTILE)
    run = made.run(HOSTILE, [rule], [made.failed(detail=HOSTILE, stderr=HOSTILE, where=HOSTILE)])
    (case,) = cases(run).values()

    assert case.find("failure").get("message") == printable(HOSTILE)
    (line,) = annotations([run], made.Path("/nowhere"))
    assert line.isprintable()
    text = summary.render([run], "markdown")
    assert [letter for letter in text if not letter.isprintable() and letter != "\n"] == []
    assert "<b>" not in text


def many(number=20_000, detail="x" * 200):
    """Make a run with many failures."""
    rules = [made.rule(f"order.rule-{place}") for place in range(number)]
    return made.run("toy", rules, [made.failed(rule.id, detail=detail) for rule in rules])


def test_summary_keeps_its_limit():
    """The summary is no larger than GitHub takes, ends with a whole line, and says how much is left out."""
    text = summary.within([many()], summary.LIMIT)
    *_, last_bullet, empty, last = text.splitlines()

    assert summary.LIMIT - 1000 < len(text.encode()) <= summary.LIMIT
    assert last_bullet.endswith("x")
    assert (empty, last.endswith(" more lines had no room here")) == ("", True)


def test_summary_that_fits():
    """A summary that fits is whole."""
    assert summary.within(made.three(), summary.LIMIT) == summary.render(made.three(), "markdown")


def test_summary_without_room():
    """A step whose summary is full gets nothing more."""
    assert summary.within(made.three(), 50) == ""


def test_annotations_keep_github_s_limit():
    """Of many errors the first ten are shown, and the last of these counts the others."""
    lines = annotations([many(25)], made.Path("/nowhere"))

    assert len(lines) == MOST
    assert lines[-1].endswith("x (and 15 more)")


def test_annotations_name_files_of_the_repository(tmp_path):
    """A record names the last folders of a file; it is found wherever it lies in the repository, but not outside."""
    file = tmp_path / "python" / "mine" / "expectations" / "torch-eager.toml"
    file.parent.mkdir(parents=True)
    file.touch()
    run = made.run("toy", [made.rule()], [made.failed(expectation=made.known("order.first", "crash"))])

    (found,) = annotations([run], tmp_path)
    (lost,) = annotations([run], tmp_path / "python" / "other")
    assert found.startswith(
        "::error file=python/mine/expectations/torch-eager.toml,line=7,title=order.first (MUST) on toy%3A fail"
    )
    assert lost.startswith("::error title=order.first")


def test_annotations_escape_percent():
    """GitHub reads a percent sign as an escape."""
    run = made.run("toy", [made.rule()], [made.failed(detail="100% wrong: a, b")])

    assert annotations([run], made.Path("/nowhere"))[0].endswith("::100%25 wrong: a, b")


BADGES = [
    (made.three()[:1], "hooks on torch-eager", "4 of 4 rules hold", "brightgreen"),
    (made.three()[1:2], "hooks on torch-compile:aot_eager", "2 regressions", "red"),
    (made.three()[2:3], "hooks on paddle", "1 run broken", "lightgrey"),
    (made.three()[:2], "autograd hooks", "2 regressions", "red"),
    (made.three()[3:], "hooks on torch-eager:cuda", "1 run broken", "lightgrey"),
    (
        [made.run("toy", [made.rule()], [made.passed(expectation=made.known())])],
        "hooks on toy",
        "1 of 1 rules hold",
        "yellow",
    ),
]


@pytest.mark.parametrize(("runs", "label", "message", "colour"), BADGES)
def test_badge(runs, label, message, colour):
    """The badge has the fields that shields.io reads."""
    assert json.loads(badge(runs)) == {"schemaVersion": 1, "label": label, "message": message, "color": colour}


def test_what_was_judged_where_most_is_unsupported():
    """Where most rules are unsupported the summary says which chapters its counts speak of, and what the rest needs."""
    few = [made.rule("order.first"), *(made.rule(f"nodes.n{each}", "nodes", needs=["nodes"]) for each in range(3))]
    lacks = [made.failed(rule.id, Outcome.UNSUPPORTED, detail="nodes: it has none") for rule in few[1:]]
    run = made.run("mine", few, [made.passed("order.first"), *lacks])
    (row,) = json.loads(summary.render([run], "json"))

    assert summary.render([run], "text").splitlines()[1:] == [
        "  JUDGED   order 1 of 1",
        "  LACKING  nodes (3 rules)",
    ]
    assert row["chapters"]["nodes"] == {"passed": 0, "judged": 0, "unsupported": 3}
    assert row["lacking"] == {"nodes": 3}
    assert "LACKING" in summary.render([run], "markdown")
    assert "LACKING" not in summary.render([made.three()[0]], "text")


def test_probed_capabilities():
    """A denied capability is stale if each rule that lacks nothing else holds; otherwise those that hold are named."""
    legacy, both = ["legacy-backward-hooks"], ["backward-hooks", "legacy-backward-hooks"]
    found = {
        "a.holds": (["backward-hooks"], HOLDS_THOUGH_DENIED),
        "b.holds": (["backward-hooks"], HOLDS_THOUGH_DENIED),
        "c.holds": (legacy, HOLDS_THOUGH_DENIED),
        "c.fails": (legacy, FAILS_AS_DENIED),
        "d.fails": (both, FAILS_AS_DENIED),
        "e.not-probed": (["ranks"], ""),
    }
    rules = [made.rule(name, needs=both if lacks == legacy else lacks) for name, (lacks, _) in found.items()]
    results = [
        made.passed(name, outcome=Outcome.UNSUPPORTED, detail=word + "; ".join(f"{lack}: none" for lack in lacks))
        for name, (lacks, word) in found.items()
    ]
    said = summary.render([made.run("toy", rules, results)], "text")

    assert [line.split("PROBED")[1].strip() for line in said.splitlines() if "PROBED" in line] == [
        "backward-hooks: stale: denied, yet each rule that lacks nothing else holds: a.holds, b.holds",
        "legacy-backward-hooks: denied, yet 1 of 2 rules that lack nothing else hold: c.holds",
    ]
