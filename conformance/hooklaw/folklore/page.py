"""The folklore as a page of the documentation, in Markdown."""

import re
from collections.abc import Sequence

from hooklaw.folklore.reading import Claim, Theme
from hooklaw.results.text import code
from hooklaw.results.text import markdown as plain

HEAD = """\
# What is said of hooks

What tutorials, manuals and forums say of hooks, saved tensors and graph lifetime, claim by claim, in our own words.
Each claim has its source, a verdict, and the rules of the law that decide it; `hooklaw explain RULE` shows a rule.
A program stands below the claims that are false or outdated; `hooklaw folklore --run` runs all programs and rules.
A source that ends in `.txt` is one of the three documents that the project began with.
This page is written by `hooklaw folklore --format markdown`.
"""


def markdown(themes: Sequence[Theme]) -> str:
    """Return the page."""
    return "\n".join([HEAD, _counts(themes), _contents(themes), *(line for theme in themes for line in _theme(theme))])


def _counts(themes: Sequence[Theme]) -> str:
    claims = [claim for theme in themes for claim in theme.claims]
    rows = [
        f"| {verdict} | {sum(claim.verdict is verdict for claim in claims)} |"
        for verdict in dict.fromkeys(sorted(claim.verdict for claim in claims))
    ]
    return "\n".join(["| verdict | claims |", "|---|---|", *rows, f"| all | {len(claims)} |", ""])


def _contents(themes: Sequence[Theme]) -> str:
    rows = [f"| [{plain(theme.title)}](#{_anchor(theme.title)}) | {len(theme.claims)} |" for theme in themes]
    return "\n".join(["| theme | claims |", "|---|---|", *rows, ""])


def _anchor(title: str) -> str:
    """Return the name that Markdown gives to a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _theme(theme: Theme) -> list[str]:
    return [f"## {theme.title}", "", *(line for claim in theme.claims for line in _claim(claim))]


def _claim(claim: Claim) -> list[str]:
    verdict = str(claim.verdict).capitalize()
    answer = f"**{verdict}:** {plain(claim.answer)}" if claim.answer else f"**{verdict}.**"
    lines = [f"### {plain(claim.claim)}", "", answer]
    lines += ["", *_said(claim), ""]
    if claim.verdict.refutes:
        lines += ["```python", claim.program.strip(), "```", "", "```text", claim.prints.rstrip(), "```", ""]
    return lines


def _said(claim: Claim) -> list[str]:
    """Return who says it, what decides it, and its id: a sentence for each."""
    lines = [f"Said in {_source(claim)}."]
    lines += [f"Decided by {', '.join(map(code, claim.rules))}."] if claim.rules else []
    lines += [f"Measured by {code(claim.benchmark)}."] if claim.benchmark else []
    return [
        *lines,
        f"`hooklaw folklore {claim.id}` shows its program." if claim.program else f"Claim {code(claim.id)}.",
    ]


def _source(claim: Claim) -> str:
    if claim.seed:
        return f"{code(claim.source)}, {plain(claim.where)}" if claim.where else code(claim.source)
    return f"[{plain(claim.where or claim.source)}]({claim.source})"
