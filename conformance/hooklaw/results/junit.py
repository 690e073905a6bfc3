"""JUnit XML of runs: a suite for each run, a case for each rule, named by the rule's id and what was judged."""

from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree as ET

from hooklaw.law.rule import Rule
from hooklaw.results.naming import names
from hooklaw.results.records import Result, Run
from hooklaw.results.summary import words
from hooklaw.results.text import printable, printable_lines
from hooklaw.results.verdict import JUDGED, Outcome, Verdict, as_known

ERRORS = JUDGED - {Outcome.PASS, Outcome.FAIL}
ALLOWED = "a MAY rule is allowed to differ"


def junit(runs: Sequence[Run], broken: Mapping[str, str] = {}) -> str:
    """Return the XML; `broken` says of backends that could not be judged why."""
    root = ET.Element("testsuites", name="hooklaw")
    for run, name in zip(runs, names(runs), strict=True):
        root.append(_suite(run, name))
    for backend, why in broken.items():
        suite = ET.SubElement(root, "testsuite", name=printable(backend))
        case = ET.SubElement(suite, "testcase", classname="hooklaw", name=printable(f"load[{backend}]"), time="0")
        ET.SubElement(case, "error", message=printable(why)).text = printable_lines(why)
        _count(suite)
    _count(root)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(run: Run, name: str) -> ET.Element:
    suite = ET.Element("testsuite", name=printable(name), timestamp=printable(run.header.started))
    _properties(suite, [*run.header.versions.items(), ("hooklaw", run.header.suite)])
    said = words(run)
    suite.extend(_case(run, rule, name, said[rule.id]) for rule in run.header.rules)
    for entry in run.stale:
        named = printable(f"stale entry for {entry.rule}, {entry.file}:{entry.line}[{name}]")
        case = ET.SubElement(suite, "testcase", classname="hooklaw.expectations", name=named, time="0")
        ET.SubElement(case, "failure", message=printable(f"the entry {entry.why}"), type="stale")
    _count(suite)
    return suite


def _case(run: Run, rule: Rule, name: str, word: str) -> ET.Element:
    result = run.results.get(rule.id)
    case = ET.Element(
        "testcase",
        classname=printable(f"hooklaw.{rule.chapter}"),
        name=printable(f"{rule.id}[{name}]"),
        time=f"{result.duration if result else 0:.5f}",
    )
    sources = [("source", " ".join(filter(None, [str(source), source.url]))) for source in rule.sources]
    _properties(case, [("rule", rule.id), ("level", rule.level), ("statement", rule.statement), *sources])
    for kind, message, text in _said(run, rule, result):
        ET.SubElement(case, kind, message=printable(message), type=word).text = printable_lines(text)
    return case


def _said(run: Run, rule: Rule, result: Result | None) -> Iterator[tuple[str, str, str]]:
    """Yield the element, its message and its text, where a rule did not simply pass."""
    if result is None:
        yield "error", "no result: the run did not come to its end", ""
        return
    verdict, known = run.verdict(rule), result.expectation
    text = "\n".join(_text(rule, result))
    if verdict is Verdict.FIXED:
        yield "failure", f"it holds, though {known.file}:{known.line} expects that it does not" if known else "", text
    elif verdict is Verdict.REGRESSION:
        yield ("error" if result.outcome in ERRORS else "failure"), result.detail, text
    elif result.outcome is not Outcome.PASS:
        judged = result.outcome in JUDGED
        yield "skipped", (known.reason if known else ALLOWED) if judged else result.detail, text


def _text(rule: Rule, result: Result) -> Iterator[str]:
    yield f"{rule.level}: {rule.statement}"
    yield from (f"stated in {' '.join(filter(None, [str(source), source.url]))}" for source in rule.sources)
    yield f"{result.outcome}: {result.detail}" + (f"  [{result.where}]" if result.where else "")
    if result.expectation:
        yield f"known: {as_known(result.expectation)}"
    yield from (f"stderr: {line}" for line in result.stderr.splitlines())


def _properties(element: ET.Element, pairs: Sequence[tuple[str, str]]) -> None:
    within = ET.SubElement(element, "properties")
    for key, value in pairs:
        ET.SubElement(within, "property", name=printable(key), value=printable(value))


def _count(element: ET.Element) -> None:
    cases = [*element.iter("testcase")]
    element.set("tests", str(len(cases)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(attribute, str(sum(case.find(kind) is not None for case in cases)))
    element.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
