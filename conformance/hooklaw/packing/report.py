"""The verdict on a packer in words: safe, safe except for what is listed, or unsafe, with the programs that show it."""

import json
from collections.abc import Sequence

import msgspec

from hooklaw.law.rule import Level, Rule
from hooklaw.results import host
from hooklaw.results.records import Execution, Run
from hooklaw.results.text import printable
from hooklaw.results.verdict import JUDGED, Outcome, Verdict

FORMATS = ("text", "json", "markdown")
WORST_FIRST = [str(outcome) for outcome in (Outcome.CRASH, Outcome.TIMEOUT, Outcome.FAIL, Outcome.ERROR)]
ALLOWED = "a SHOULD: the packer is safe except for this"
"""Why a broken SHOULD is not a regression."""


class CheckedProperty(msgspec.Struct, frozen=True):
    """The result of one property on one device; an object of the JSON."""

    property_id: str = msgspec.field(name="property")
    outcome: str
    detail: str
    level: str
    statement: str
    device: str
    where: str = ""
    program: str = ""
    """The smallest program that shows it, if the property does not hold."""
    known: str = ""
    """The reason given in the expectation file, if the failure is listed there."""
    stderr: str = ""
    """The last lines that the process wrote to stderr before it died."""

    @property
    def broken(self) -> bool:
        """Whether it was judged and does not hold."""
        return self.outcome in JUDGED and self.outcome != Outcome.PASS


class PackerVerdict(msgspec.Struct, frozen=True):
    """The results of one packer on one device."""

    head: str
    rows: list[CheckedProperty]
    seconds: float

    @property
    def broken(self) -> list[CheckedProperty]:
        """Return the properties that do not hold, what matters most first."""
        found = [row for row in self.rows if row.broken]
        return sorted(found, key=lambda row: (bool(row.known), row.level != Level.MUST, WORST_FIRST.index(row.outcome)))

    @property
    def unsafe(self) -> list[str]:
        """Return the MUSTs that fail and are not known to."""
        return [row.property_id for row in self.rows if row.broken and row.level == Level.MUST and not row.known]

    @property
    def verdict(self) -> str:
        """Return the verdict in one sentence."""
        if self.unsafe:
            return f"unsafe: breaks {', '.join(self.unsafe)}"
        rest = [row.property_id for row in self.broken]
        return f"safe except for {', '.join(rest)}" if rest else "safe"

    @property
    def counts(self) -> str:
        """Return how many properties hold, of how many that could be judged."""
        outcomes = [row.outcome for row in self.rows]
        judged = sum(outcome in JUDGED for outcome in outcomes)
        further = len(outcomes) - judged
        rest = f", {further} not applicable and not counted" if further else ""
        noun = "property holds" if judged == 1 else "properties hold"
        return f"{outcomes.count(Outcome.PASS)} of {judged} {noun}{rest}; {self.seconds:.1f} s"


def of_run(run: Run) -> PackerVerdict:
    """Return the verdict that a run comes to."""
    header = run.header
    declared = "".join(f", {name} {value}" for name, value in header.notes.items())
    of_the_machine = host.versions()
    packages = ", ".join(f"{name} {value}" for name, value in header.versions.items() if name not in of_the_machine)
    head = f"{header.backend} on {header.device} ({packages}{declared})"
    rows: list[CheckedProperty] = []
    for rule in header.rules:
        if result := run.results.get(rule.id):
            entry = result.expectation
            expected = entry and entry.reason != ALLOWED and run.verdict(rule) is Verdict.AS_EXPECTED
            known = entry.reason if entry and expected and result.outcome is not Outcome.PASS else ""
            rows.append(checked(rule, result, header.device, known))
    return PackerVerdict(head, rows, run.footer.seconds if run.footer else 0.0)


def checked(rule: Rule, execution: Execution, device: str, known: str = "") -> CheckedProperty:
    """Return the result of a property with the law that it states."""
    return CheckedProperty(
        property_id=rule.id,
        outcome=str(execution.outcome),
        detail=execution.detail,
        level=str(rule.level),
        statement=rule.statement,
        device=device,
        where=execution.where,
        program=execution.program,
        known=known,
        stderr=execution.stderr,
    )


def render(verdicts: Sequence[PackerVerdict], form: str) -> str:
    """Return the verdicts as text, JSON or markdown."""
    if form == "json":
        return json.dumps([msgspec.to_builtins(row) for found in verdicts for row in found.rows], indent=1) + "\n"
    return "\n".join(text(found) if form == "text" else _markdown(found) for found in verdicts)


def text(found: PackerVerdict) -> str:
    """Return the verdict, each failure with the program that shows it, and the counts."""
    lines = [printable(f"{found.head}: {found.verdict}"), ""]
    for row in found.broken:
        lines += [*failure(row), ""]
    return "\n".join([*lines, *_not_applicable(found), found.counts, ""])


def failure(row: CheckedProperty) -> list[str]:
    """Return the lines that show a property that does not hold: the law, what was seen, and the program."""
    word = f"known {row.outcome}" if row.known else row.outcome
    lines = [f"{word.upper()}  {row.property_id} ({row.level}): {row.statement}", f"  {printable(row.detail)}"]
    lines += [f"  known: {printable(row.known)}"] if row.known else []
    lines += [f"  {printable(row.where)}"] if row.where else []
    lines += ["  the last lines of its stderr:", *_indented(row.stderr)] if row.stderr else []
    return [*lines, "", *_indented(row.program)]


def _indented(lines: str) -> list[str]:
    return [f"    {printable(line)}".rstrip() for line in lines.splitlines()]


def _not_applicable(found: PackerVerdict) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if row.outcome == Outcome.UNSUPPORTED:
            reasons.setdefault(row.detail, []).append(row.property_id)
    return [f"not applicable, {printable(why)}: {', '.join(ids)}" for why, ids in reasons.items()]


def _markdown(found: PackerVerdict) -> str:
    table = [
        f"| `{row.property_id}` | {row.level} | {row.outcome} | {printable(row.detail).replace('|', '&#124;')} |"
        for row in found.rows
    ]
    lines = [
        printable(f"**{found.head}: {found.verdict}**"),
        "",
        "| property | level | outcome | what broke |",
        "|---|---|---|---|",
    ]
    for row in found.broken:
        table += ["", f"`{row.property_id}`: {row.statement}", "", "```python", row.program.rstrip(), "```"]
    return "\n".join([*lines, *table, "", found.counts, ""])
