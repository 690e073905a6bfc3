"""The folklore page of a report: the claims that the rules of its runs decide."""

import re

import made_records as made
from hooklaw.folklore import load_claims
from hooklaw_reports.folklore import folklore
from hooklaw_reports.page import build


def judged(*rules, **parts):
    """Make a run of torch with these rules."""
    law = [made.rule(rule, "some-chapter") for rule in rules]
    return made.run("torch-eager", law, [made.passed(rule) for rule in rules], **parts)


def test_claims_of_the_rules():
    """A page has the claims that a rule of the report decides, and links to the rules that are there."""
    run = judged("module.full-backward.args")
    page = made.report([run])

    assert folklore([run]).claims == [each for each in load_claims() if "module.full-backward.args" in each.rules]
    assert '<a href="#rule=module.full-backward.args"><code>module.full-backward.args</code></a>' in page
    assert "<code>module.legacy-backward.last-node-only</code>" in page
    assert '"#rule=module.legacy-backward.last-node-only"' not in page


def test_all_claims():
    """If every rule that a claim names is there, so are the claims that a program alone decides."""
    rules = dict.fromkeys(rule for claim in load_claims() for rule in claim.rules)

    assert len(folklore([judged(*rules)]).claims) == len(load_claims())


def test_no_claims():
    """A report of other rules, or of no torch, has no such page, and no choice of pages."""
    other = judged("order.first")
    paddle = judged("module.full-backward.args", versions={"paddle": "3.3"})

    assert folklore([other]) is None
    assert folklore([paddle]) is None
    assert "<nav" not in made.report([other])


def test_rule_names_its_claims():
    """The details of a rule name the claims that it decides."""
    text = made.report([judged("module.full-backward.args")])
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]

    assert "seed0.module.grad-input-meaning" in data
    assert "false" in data


def test_counts():
    """The verdicts are counted."""
    seen = build([judged("module.full-backward.args")]).folklore

    assert sum(count for _, count in seen.counts) == len(seen.claims)
    assert [mark.word for mark, _ in seen.counts][:2] == ["true", "false"]
