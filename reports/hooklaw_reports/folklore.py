"""The folklore page: what is said of hooks, as far as the rules of the report decide it."""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from hooklaw.folklore import Claim, Ruling, Theme, about, load_themes
from hooklaw.results.records import Run, RunKind
from hooklaw_reports.marks import Mark
from hooklaw_reports.sheet import Kind

MARKS = {
    Ruling.TRUE: Mark("pass", "✓", "true"),
    Ruling.FALSE: Mark("bad", "✗", "false"),
    Ruling.TRUE_IF: Mark("known", "~", "true only if"),
    Ruling.OUTDATED: Mark("open", "◷", "outdated"),
}
FOLKLORE = Kind(RunKind.RULES, "folklore", "Folklore", "claim", "claim", "claims")


class Folklore(msgspec.Struct, frozen=True):
    """The claims by theme."""

    themes: list[Theme]
    rules: Collection[str]
    """The rules of the report: they have a place to link to."""
    kind: Kind = FOLKLORE

    @property
    def claims(self) -> list[Claim]:
        """Every claim of the page."""
        return [claim for theme in self.themes for claim in theme.claims]

    @property
    def counts(self) -> list[tuple[Mark, int]]:
        """How many claims have each verdict."""
        counts = Counter(claim.verdict for claim in self.claims)
        return [(mark, counts[ruling]) for ruling, mark in MARKS.items() if counts[ruling]]

    def mark(self, claim: Claim) -> Mark:
        """Return the mark of a claim's verdict."""
        return MARKS[claim.verdict]


def folklore(runs: Sequence[Run]) -> Folklore | None:
    """Return the claims that rules of these runs decide, or None if no run is of torch.

    A claim that a program alone decides is there if the runs have every rule that a claim names.
    """
    rules = {
        rule.id
        for run in runs
        if run.header.run_kind is RunKind.RULES and "torch" in run.header.versions
        for rule in run.header.rules
    }
    themes = load_themes() if rules else []
    whole = all(rule in rules for theme in themes for claim in theme.claims for rule in claim.rules)
    kept = [_kept(theme, rules, whole=whole) for theme in themes]
    found = [theme for theme in kept if theme.claims]
    return Folklore(found, rules) if found else None


def said_of(page: Folklore | None, rule_id: str) -> list[tuple[str, str, str]]:
    """Return the id, the verdict and the text of each claim of a page that a rule decides, the refuted ones first."""
    return [(claim.id, claim.verdict, claim.claim) for claim in (about(rule_id) if page else [])]


def _kept(theme: Theme, rules: Collection[str], *, whole: bool) -> Theme:
    kept = [claim for claim in theme.claims if whole or any(rule in rules for rule in claim.rules)]
    return msgspec.structs.replace(theme, claims=kept)
