"""The verdict on a packer in words: safe, safe except for what is listed, or unsafe, and the programs that show it."""

import json
from collections.abc import Sequence

import msgspec

from hooklaw.law.rule import Level
from hooklaw.results.verdict import JUDGED, Outcome

FORMATS = ("text", "json", "markdown")
WORST_FIRST = [str(one) for one in (Outcome.CRASH, Outcome.TIMEOUT, Outcome.FAIL, Outcome.ERROR)]


class Row(msgspec.Struct, frozen=True):
    """What came of one property on one device; an object of the JSON."""

    property_id: str = msgspec.field(name="property")
    outcome: str
    detail: str
    level: str
    statement: str
    device: str
    where: str = ""
    program: str = ""
    """The smallest program that shows it, where the property does not hold."""
    known: str = ""
    """Why it is known to break, where the expectation file lists it."""

    @property
    def broken(self) -> bool:
        """Tell whether it was judged and does not hold."""
        return self.outcome in JUDGED and self.outcome != Outcome.PASS


class Findings(msgspec.Struct, frozen=True):
    """What came of one packer on one device."""

    head: str
    rows: list[Row]
    seconds: float

    @property
    def broken(self) -> list[Row]:
        """Return the rows that do not hold, what matters most first."""
        found = [row for row in self.rows if row.broken]
        return sorted(found, key=lambda row: (bool(row.known), row.level != Level.MUST, WORST_FIRST.index(row.outcome)))

    @property
    def unsafe(self) -> list[str]:
        """Return the MUSTs that do not hold and are not known to."""
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
        judged = sum(one in JUDGED for one in outcomes)
        further = len(outcomes) - judged
        rest = f", {further} not applicable and not counted" if further else ""
        noun = "property holds" if judged == 1 else "properties hold"
        return f"{outcomes.count(Outcome.PASS)} of {judged} {noun}{rest}; {self.seconds:.1f} s"


def render(found: Sequence[Findings], form: str) -> str:
    """Return the verdicts as text, JSON or markdown."""
    if form == "json":
        return json.dumps([msgspec.to_builtins(row) for one in found for row in one.rows], indent=1) + "\n"
    return "\n".join(text(one) if form == "text" else _markdown(one) for one in found)


def text(found: Findings) -> str:
    """Return the verdict, what broke with the program that shows it, and the counts."""
    lines = [f"{found.head}: {found.verdict}", ""]
    for row in found.broken:
        word = f"known {row.outcome}" if row.known else row.outcome
        lines += [f"{word.upper()}  {row.property_id} ({row.level}): {row.statement}", f"  {row.detail}"]
        lines += [f"  known: {row.known}"] if row.known else []
        lines += [f"  {row.where}"] if row.where else []
        lines += ["", *(f"    {line}".rstrip() for line in row.program.splitlines()), ""]
    return "\n".join([*lines, *_not_applicable(found), found.counts, ""])


def _not_applicable(found: Findings) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if row.outcome == Outcome.UNSUPPORTED:
            reasons.setdefault(row.detail, []).append(row.property_id)
    return [f"not applicable, {why}: {', '.join(ids)}" for why, ids in reasons.items()]


def _markdown(found: Findings) -> str:
    table = [
        f"| `{row.property_id}` | {row.level} | {row.outcome} | {row.detail.replace('|', '&#124;')} |"
        for row in found.rows
    ]
    lines = [
        f"**{found.head}: {found.verdict}**",
        "",
        "| property | level | outcome | what broke |",
        "|---|---|---|---|",
    ]
    for row in found.broken:
        table += ["", f"`{row.property_id}`: {row.statement}", "", "```python", row.program.rstrip(), "```"]
    return "\n".join([*lines, *table, "", found.counts, ""])
