"""Claims about hooks, read from the TOML files in `claims`: one file for each theme."""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from hooklaw.errors import FolkloreError, did_you_mean
from hooklaw.results.toml_tables import Table, TableForm, read

CLAIMS = Path(str(files("hooklaw.folklore"))) / "claims"
TORCH = "2.13.0"
"""The version of torch that the verdicts and the programs speak of."""
FORM = TableForm("folklore file", "claim", FolkloreError, [], ["title", "practice"])


class Ruling(StrEnum):
    """What is to be thought of a claim."""

    TRUE = "true"
    FALSE = "false"
    TRUE_IF = "true only if"
    OUTDATED = "outdated"

    @property
    def refutes(self) -> bool:
        """Whether a reader who believes the claim will be wrong today."""
        return self in {Ruling.FALSE, Ruling.OUTDATED}


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that is said of hooks, who says it, and whether it is so."""

    id: str
    source: str
    """The file name of a document that the project began with, or the address of a page."""
    where: str = ""
    """What the page is, or the place within the document."""
    claim: str
    """What is said, in our own words."""
    verdict: Ruling
    answer: str = ""
    """What is true instead, the condition under which it is true, or what to know besides."""
    rules: list[str] = []
    """The rules whose statements decide the claim."""
    program: str = ""
    """Plain torch code that shows what is true."""
    prints: str = ""
    """What the program prints."""
    benchmark: str = ""
    """The command that measures what no program of a few lines can."""
    theme: str = ""
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """The file and line of the claim."""
        return f"{self.file}:{self.line}"

    @property
    def seed(self) -> bool:
        """Whether a document that the project began with says it."""
        return not self.source.startswith(("https://", "http://"))


class Theme(msgspec.Struct, frozen=True):
    """Claims about one thing."""

    name: str
    title: str
    practice: bool
    """Whether the theme is what goes wrong in practice."""
    claims: list[Claim]


def load_themes(folder: Path = CLAIMS) -> list[Theme]:
    """Return the themes of a folder, those about what goes wrong in practice last.

    Raises FolkloreError, which says what is wrong with a claim, and where.
    """
    themes = [_theme(path) for path in sorted(folder.glob("*.toml"))]
    if not themes:
        raise FolkloreError(f"no folklore is in {folder}: it holds no TOML file")
    _refuse_second(claim for theme in themes for claim in theme.claims)
    return sorted(themes, key=lambda theme: (theme.practice, theme.title.lower()))


@cache
def load_claims(folder: Path = CLAIMS) -> list[Claim]:
    """Return every claim of a folder."""
    return [claim for theme in load_themes(folder) for claim in theme.claims]


def about(rule_id: str) -> list[Claim]:
    """Return the claims that a rule is evidence for or against, the refuted ones first."""
    found = [claim for claim in load_claims() if rule_id in claim.rules]
    return sorted(found, key=lambda claim: not claim.verdict.refutes)


def check_rules(claims: Iterable[Claim], known: Collection[str]) -> None:
    """Raise FolkloreError unless every rule that a claim names exists."""
    for claim in claims:
        for rule in claim.rules:
            if rule not in known:
                hint = did_you_mean(rule, known, "`hooklaw list` shows all ids")
                _fail(claim, f"names the rule {rule!r}, which does not exist: {hint}")


def _theme(path: Path) -> Theme:
    found = read(path, FORM)
    title, practice = found.values.get("title", ""), found.values.get("practice", False)
    if not isinstance(title, str) or not title.strip() or not isinstance(practice, bool):
        raise FolkloreError(f'{path}:1: begin the file with a line title = "..."; practice is true or false')
    return Theme(path.stem, title, practice, [_claim(table, path) for table in found.tables])


def _claim(table: Table, path: Path) -> Claim:
    place = f"{path}:{table.line}"
    named = table.values.get("id", "")
    verdict = table.values.get("verdict")
    if verdict is not None and verdict not in [*Ruling]:
        hint = did_you_mean(str(verdict), [*Ruling], f"choose from {', '.join(Ruling)}")
        raise FolkloreError(f"{place}: claim {named!r} has the verdict {verdict!r}, which does not exist: {hint}")
    own: dict[str, Any] = {"theme": path.stem, "file": path.name, "line": table.line}
    try:
        claim = msgspec.convert({**table.values, **own}, Claim)
    except msgspec.ValidationError as error:
        raise FolkloreError(f"{place}: claim {named!r} is malformed: {error}") from error
    _check(claim)
    return claim


def _check(claim: Claim) -> None:
    """Refuse a claim that a reader could not look up, or believe."""
    if not claim.id or not claim.claim:
        _fail(claim, "has no id or no text")
    if claim.seed and not claim.source.endswith(".txt"):
        _fail(claim, "has no source: give the document's file name, or the address of a page")
    if not (claim.rules or claim.program or claim.benchmark):
        _fail(claim, "has no evidence: name rules, or give a program")
    if bool(claim.program) != bool(claim.prints):
        _fail(claim, "needs both a program and what it prints, or neither")
    if claim.verdict is not Ruling.TRUE and not claim.answer:
        _fail(claim, f"is {claim.verdict}, so it needs an answer: what is true instead, or under which condition")
    if claim.verdict.refutes and not claim.program:
        _fail(claim, f"is {claim.verdict}, so it needs a program that shows what is true instead")


def _refuse_second(claims: Iterable[Claim]) -> None:
    seen: dict[str, Claim] = {}
    for claim in claims:
        if claim.id in seen:
            _fail(claim, f"is there twice, also at {seen[claim.id].place}")
        seen[claim.id] = claim


def _fail(claim: Claim, what: str) -> NoReturn:
    raise FolkloreError(f"{claim.place}: claim {claim.id!r} {what}")


def themes_of(claims: Sequence[Claim]) -> list[Theme]:
    """Return the themes of these claims, with these claims alone."""
    wanted = {claim.id for claim in claims}
    kept = [(theme, [claim for claim in theme.claims if claim.id in wanted]) for theme in load_themes()]
    return [msgspec.structs.replace(theme, claims=some) for theme, some in kept if some]
