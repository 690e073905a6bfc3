"""Containment: whatever a rule does to its process, every other rule has its result, and the culprit is named."""

from pathlib import Path

import pytest

from hooklaw.results import records

NASTY = Path(__file__).parents[1] / "data" / "nasty"
CULPRITS = {
    "nasty.segfault": ("crash", "Segmentation fault"),
    "nasty.abort": ("crash", "Aborted"),
    "nasty.kill": ("crash", "without a word"),
    "nasty.exit": ("crash", "without a word"),
    "nasty.loop": ("timeout", "within 1 s"),
    "nasty.sleep-in-c": ("timeout", "within 1 s"),
    "nasty.deadlock": ("timeout", "within 1 s"),
    "nasty.raises": ("fail", "boom"),
    "nasty.recursion": ("fail", "RecursionError"),
}


@pytest.fixture(scope="module")
def contained(tmp_path_factory, hooklaw_command):
    """Run the twenty rules once."""
    pytest.importorskip("torch", reason="the deadlock is in torch's backward thread, and torch is not installed")
    results = tmp_path_factory.mktemp("nasty") / "nasty.jsonl"
    done = hooklaw_command("run", "--rules", str(NASTY), "--limit", "1", f"--results={results}", timeout=300)
    (run,) = records.read(results)
    return done, run


def test_every_rule_has_its_result(contained):
    """Twenty rules give twenty results, and the run is complete."""
    _, run = contained

    assert (run.header.collected, len(run.results), run.complete) == (20, 20, True)


def test_exit_code_is_one(contained):
    """A crash is a regression."""
    done, _ = contained

    assert done.returncode == 1


@pytest.mark.parametrize("rule", CULPRITS)
def test_culprit_is_named(contained, rule):
    """Each culprit has its outcome, how it ended, and its own source line."""
    _, run = contained
    result = run.results[rule]
    outcome, said = CULPRITS[rule]

    assert outcome == result.outcome
    assert said in result.detail
    assert "test_nasty.py:" in result.where


def test_the_others_pass(contained):
    """Rules that do nothing wrong are not harmed by their neighbours."""
    _, run = contained
    others = {result.outcome for rule, result in run.results.items() if rule not in CULPRITS}

    assert {"pass"} == others
