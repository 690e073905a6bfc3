"""An update of an expectation file from a run: which entries go, change or come."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import msgspec

from hooklaw.law.rule import Level, Rule
from hooklaw.results import expectation_text, expectations, when
from hooklaw.results.expectation_text import Pair
from hooklaw.results.expectations import HOLDS, ExpectationFile
from hooklaw.results.looks import phrase_of, shows
from hooklaw.results.records import Header, Result, Run
from hooklaw.results.verdict import UNEXPLAINED, Expectation, Outcome

LONGEST = 200
"""An unexplained reason repeats at most this many characters of what was seen."""


def updated(path: Path, run: Run) -> tuple[str, list[str]]:
    """Return the file's new text, and a line of text for each change.

    Known divergences are those in the file now, not those at the time of the run. A new file lies over the shipped
    file that the run was judged by.
    """
    if path.exists():
        file, text = expectations.load(path), path.read_text(encoding="utf-8")
    else:
        file = expectations.laid_over(run.header.expectations)
        text = f'over = "{run.header.expectations}"\n' if file.lower else ""
    rules, facts = run.header.rules, _facts(run.header)
    own = [entry for entry in file.entries if _concerns(entry, run)]
    known = {entry.rule: entry for entry in own if expectations.applies(entry, facts)}
    pairs = [(known[rule.id], _after(known[rule.id], run, rule)) for rule in rules if rule.id in known]
    pairs = _sharing(file.entries, pairs)
    expected = _expected(file, run)
    left = [new for _, new in pairs if new and _concerns(new, run) and expectations.applies(new, facts)]
    expected |= {entry.rule: entry for entry in left}
    new = [run.results[rule.id] for rule in rules if _is_new(run, rule, expected.get(rule.id))]
    elsewhere = [_elsewhere(own, result) for result in new]
    text, apart = expectation_text.changed(text, file.entries, pairs)
    fresh = [_new(result, other, run.header) for result, other in zip(new, elsewhere, strict=True)]
    text = expectation_text.extended(text, [*apart, *fresh], file.shared)
    said = list(filter(None, map(_said, pairs))) + list(map(_added, new, elsewhere))
    return text, said


def _facts(header: Header) -> dict[str, str]:
    return when.facts(header.versions, header.device)


def _concerns(entry: Expectation, run: Run) -> bool:
    """Return whether an entry is for runs under this run's condition, or for those without one if it has none."""
    return (run.header.condition or None) in (entry.condition or [None])


def _expected(file: ExpectationFile, run: Run) -> dict[str, Expectation]:
    """Return the entries of lower files, and under a condition those that concern the run without one.

    Under a condition a rule may hold that is known to be broken without it.
    """
    rules, facts, condition = [rule.id for rule in run.header.rules], _facts(run.header), run.header.condition
    lower = expectations.inherited(file, rules, facts)
    if not condition:
        return lower.known
    found = lower.known | {
        entry.rule: entry for entry in file.entries if not entry.condition and expectations.applies(entry, facts)
    }
    inherited = {rule: entry for rule, entry in found.items() if run.outcome(rule) is not Outcome.PASS}
    return inherited | {entry.rule: entry for entry in lower.known_under if _concerns(entry, run)}


def _after(entry: Expectation, run: Run, rule: Rule) -> Expectation | None:
    """Return what an entry is after a run, or None if nothing else is left for it."""
    result, fails = run.results[rule.id], _fails(run, rule)
    outcome = result.outcome
    if (fails and entry.outcome == HOLDS) or (outcome is Outcome.PASS and outcome not in entry.outcome):
        if len(entry.condition) > 1:
            left = [name for name in entry.condition if name != run.header.condition]
            return msgspec.structs.replace(entry, condition=left)
        narrowed = when.without(entry.when, _facts(run.header))
        return msgspec.structs.replace(entry, when=narrowed) if narrowed else None
    if not fails or (outcome in entry.outcome and entry.saw and shows(entry.saw, result.seen)):
        return entry
    if outcome in entry.outcome and not entry.saw:
        return msgspec.structs.replace(entry, saw=_saw(result))
    return _changed(entry, result)


def _changed(entry: Expectation, result: Result) -> Expectation:
    """Return an entry that also expects a result which it did not: its reason is to be confirmed by a person."""
    outcomes = [*dict.fromkeys([*entry.outcome, str(result.outcome)])]
    saw = [*entry.saw, *(_saw(result) or [str(result.outcome)])] if entry.saw else []
    reason = entry.reason if entry.reason.startswith(UNEXPLAINED) else UNEXPLAINED + _reason(result, entry)
    return msgspec.structs.replace(entry, outcome=outcomes, saw=saw, reason=reason)


def _reason(result: Result, known: Expectation) -> str:
    return f"{result.detail[:LONGEST]}; it was known because {known.reason}"


def _saw(result: Result) -> list[str]:
    """Return what an entry says of the look of a result; the end of a process looks different on each machine."""
    return [phrase_of(result.detail)] if result.outcome is Outcome.FAIL else []


def _sharing(entries: Iterable[Expectation], pairs: list[Pair]) -> list[Pair]:
    """Let the rules of a list that all got their first `saw` share all phrases, so that the list stays whole."""
    after = {(old.line, old.rule): new for old, new in pairs}
    for line, table in groupby(entries, lambda entry: entry.line):
        olds = [*table]
        news = [after.get((line, old.rule)) for old in olds]
        if all(new and new == msgspec.structs.replace(old, saw=new.saw) for old, new in zip(olds, news, strict=True)):
            saw = [*dict.fromkeys(phrase for new in news if new for phrase in new.saw)]
            after |= {(line, old.rule): msgspec.structs.replace(old, saw=saw) for old in olds if not old.saw}
    return [(old, after[old.line, old.rule]) for old, _ in pairs]


def _is_new(run: Run, rule: Rule, expected: Expectation | None) -> bool:
    """Return whether a result is neither what an entry expects nor, without an entry, what the law demands."""
    result = run.results[rule.id]
    judged = result.outcome is Outcome.PASS or _fails(run, rule)
    if not expected or result.outcome is Outcome.PASS:
        return judged and result.outcome not in (expected.outcome if expected else HOLDS)
    return judged and not (result.outcome in expected.outcome and shows(expected.saw, result.seen))


def _fails(run: Run, rule: Rule) -> bool:
    outcome = run.results[rule.id].outcome
    return outcome in expectations.EXPECTABLE and (outcome is not Outcome.FAIL or rule.level is not Level.MAY)


def _said(pair: Pair) -> str:
    before, after = pair
    now = "fails" if before.outcome == HOLDS else "holds"
    if after is None:
        return f"{before.rule} {now} now: entry removed"
    if after.condition != before.condition:
        return f"{before.rule} {now} now: entry kept under {', '.join(after.condition)}"
    if after.when != before.when:
        return f"{before.rule} {now} now: entry kept for {after.when}"
    if after.outcome != before.outcome:
        return f"{before.rule}: outcome {after.outcome[-1]} added, check its reason"
    if after.reason != before.reason:
        return f"{before.rule} fails differently: {after.saw[-1]!r} added to saw, check its reason"
    return f"{before.rule}: saw added" if after != before else ""


def _elsewhere(entries: Iterable[Expectation], result: Result) -> Expectation | None:
    """Return the entry for the same outcome with the same look in other versions."""
    alike = (entry for entry in entries if entry.rule == result.rule and result.outcome in entry.outcome)
    return next((entry for entry in alike if shows(entry.saw, result.seen)), None)


def _new(result: Result, other: Expectation | None, header: Header) -> Expectation:
    seen = result.detail[:LONGEST] or "the rule holds, though a lower file says that it does not"
    return Expectation(
        result.rule,
        [str(result.outcome)],
        other.reason if other else UNEXPLAINED + seen,
        saw=_saw(result),
        issue=other.issue if other else "",
        when=when.exactly(_facts(header)),
        condition=[header.condition] if header.condition else [],
    )


def _added(result: Result, other: Expectation | None) -> str:
    return f"{result.rule}: entry added, " + (f"with the reason of line {other.line}" if other else "write its reason")
