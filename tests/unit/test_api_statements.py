"""What frameworks document of PyTorch's APIs: the table names rules that exist, and the rules decide the verdicts."""

from pathlib import Path

import pytest

import made_records as made
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Level
from hooklaw.results.verdict import Outcome

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "tools").exists(), reason="tools/ stands in the repository only")
LAW = [
    made.rule("hook.first"),
    made.rule("hook.second", level=Level.SHOULD),
    made.rule("hook.third"),
    made.rule("hook.fourth"),
    made.rule("hook.allowed", level=Level.MAY),
    made.rule("mode.off", chapter="modes"),
]


@pytest.fixture
def tool():
    """Return the module."""
    import api_statements

    return api_statements


def written(*rules, says="identical", api='api = "toy.hook"'):
    """Return a table of one statement."""
    return f"""
        [pages]
        toy = "https://example.org/"
        [[statement]]
        framework = "toy"
        torch = "torch.hook"
        {api}
        says = "{says}"
        page = "{{toy}}hook.html"
        rules = {[*rules]}
    """


def row(tool, results, *rules, **parts):
    """Return the row of one statement."""
    (found,) = tool.rows(tool.statements(written(*rules, **parts), LAW), made.run("toy", LAW, results))
    return found


def test_the_table_is_right(tool):
    """Each rule exists, each statement has a page, and no API stands twice."""
    found = tool.statements(tool.TABLE.read_text(), [each.rule for each in load_rules().values()])
    apis = [(one.framework, one.torch) for one in found]

    assert {one.framework for one in found} == {"paddle", "mindspore"}
    assert [one.torch for one in found if not one.page.startswith("https://github.com/")] == []
    assert sorted(set(apis)) == sorted(apis)


def test_each_page_is_used(tool):
    """No page is named that no statement refers to."""
    text = tool.TABLE.read_text()
    pages, _, rest = text.partition("[[statement]]")

    assert [line for line in pages.splitlines() if " = " in line and f"{{{line.split()[0]}}}" not in rest] == []


def test_all_rules_hold(tool):
    """A statement of which all judged rules hold is borne out; a MAY rule does not count."""
    results = [made.passed("hook.first"), made.passed("hook.second"), made.failed("hook.allowed")]

    assert row(tool, results, "hook.*") == [
        "`torch.hook`",
        "`toy.hook`",
        "[identical](https://example.org/hook.html)",
        "2 of 2",
        "holds",
    ]


def test_a_rule_that_does_not_hold(tool):
    """The rules that do not hold are named, however they end."""
    results = [made.passed("hook.first"), made.failed("hook.second", Outcome.CRASH)]

    assert row(tool, results, "hook.*")[3:] == ["1 of 2", "does not hold: `hook.second` (1)"]


def test_many_rules_that_do_not_hold(tool):
    """Three rules are named, and the others counted."""
    results = [made.failed(rule.id) for rule in LAW]
    said = "does not hold: `hook.first`, `hook.second`, `hook.third`, … (5)"

    assert row(tool, results, "hook.*", "modes")[3:] == ["0 of 5", said]


def test_nothing_is_judged(tool):
    """Without a rule that is judged there is no verdict."""
    results = [made.failed("mode.off", Outcome.UNSUPPORTED)]

    assert row(tool, results, "mode.off", says="none", api="") == [
        "`torch.hook`",
        "\u2013",
        "[none](https://example.org/hook.html)",
        "\u2013",
        "not judged",
    ]


def test_what_is_not_judged_comes_last(tool):
    """A statement that is judged stands before those that are not."""
    first, second = tool.statements(written("mode.off"), LAW) + tool.statements(written("hook.first"), LAW)
    found = tool.rows([first, second], made.run("toy", LAW, [made.passed("hook.first")]))

    assert [each[-1] for each in found] == ["holds", "not judged"]


@pytest.mark.parametrize("name", ["hook.fifth", "hooks.*", "hook"])
def test_a_rule_that_does_not_exist(tool, name):
    """A name that is no id, no chapter and no pattern of ids is refused, with the statement that has it."""
    with pytest.raises(SystemExit, match=rf"toy, torch\.hook: no rule has the id or the chapter '{name}'"):
        tool.statements(written(name), LAW)


def test_a_word_that_is_not_known(tool):
    """What a statement says is one of a few words, or names the difference."""
    (found,) = tool.statements(written("hook.first", says="differs: it takes a list"), LAW)

    assert found.says == "differs: it takes a list"
    with pytest.raises(SystemExit, match="toy, torch.hook: 'similar' is none of identical, only the call differs"):
        tool.statements(written("hook.first", says="similar"), LAW)
