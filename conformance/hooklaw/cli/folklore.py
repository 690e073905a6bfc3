"""Judge what is said of hooks: each claim with its source, its verdict, and what is true instead.

Words that are given must all be in a claim: in its id, theme, verdict, source, rules or text; an id finds one claim.
--run executes the evidence on the installed torch: the rules that decide a claim, and its program.

Examples:
    hooklaw folklore retain_graph
    hooklaw folklore seed0.module.grad-input-meaning
    hooklaw folklore --run -k "clipping and false"
"""

import argparse
import json
import textwrap
from collections.abc import Sequence

import msgspec

from hooklaw.cli import say
from hooklaw.cli.options import add_selection
from hooklaw.cli.progress import StatusLine
from hooklaw.errors import UnknownClaimError
from hooklaw.folklore import Claim, load_claims
from hooklaw.folklore.evidence import Finding, find, other_torch
from hooklaw.folklore.page import markdown
from hooklaw.folklore.reading import check_rules, themes_of
from hooklaw.law.collection import load_rules
from hooklaw.law.selection import Catalogue, Kind, Places
from hooklaw.results.summary import counted
from hooklaw.results.verdict import Exit

CLAIMS = Kind("claim", "`hooklaw folklore` shows all claims", UnknownClaimError)
WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only claims with all of these words; or the id of one"
    )
    by = "words joined by and, or, not: of ids, themes, verdicts, else of rules and sources, else of texts"
    add_selection(parser, f"only claims with {by}")
    parser.add_argument("--format", choices=["text", "json", "markdown"], default="text")
    parser.add_argument("--run", action="store_true", help="execute the evidence; exit with 1 if it contradicts")


def main(args: argparse.Namespace) -> int:
    """Print the claims; with --run say of each whether its evidence bears the verdict out."""
    every = load_claims()
    check_rules(every, load_rules())
    claims = wanted(every, args.words, args.selection)
    if args.run:
        return _run(claims, args.format)
    say({"text": _text, "json": _json, "markdown": _markdown}[args.format](claims))
    return Exit.OK.code


def wanted(claims: Sequence[Claim], words: Sequence[str], selection: str) -> list[Claim]:
    """Return the claim with this id, or the claims with these words; UnknownClaimError if there are none."""
    words = " ".join(words).split()
    named = [claim for claim in claims if [claim.id] == words]
    found = named or Catalogue(claims, _places, CLAIMS).search(words) if words else claims
    found = Catalogue(found, _places, CLAIMS).select(selection)
    if not found:
        raise UnknownClaimError(f"the selection matches no claim: {CLAIMS.listed_by}")
    return found


def _places(claim: Claim) -> Places:
    return (
        [claim.id, claim.theme, claim.verdict],
        [*claim.rules, claim.source, claim.where],
        [claim.claim, claim.answer, claim.program],
    )


def _run(claims: Sequence[Claim], form: str) -> int:
    status = StatusLine()
    findings = [*find(claims, status.update)]
    status.end()
    say({"text": _found_text, "json": _found_json, "markdown": _found_markdown}[form](findings))
    return (Exit.REGRESSION if any(finding.faults for finding in findings) else Exit.OK).code


def _text(claims: Sequence[Claim]) -> str:
    if len(claims) == 1:
        return "\n".join(_whole(claims[0])) + "\n"
    lines = [line for theme in themes_of(claims) for line in ["", theme.title, *map(_line, theme.claims)]]
    return "\n".join(lines).lstrip("\n") + f"\n\n{tally(claims)}\n`hooklaw folklore ID` shows a claim whole\n"


def _line(claim: Claim) -> str:
    return f"  {claim.verdict:12} {claim.id:40} {claim.claim}"


def tally(claims: Sequence[Claim]) -> str:
    """Return the claims counted by verdict."""
    verdicts = [claim.verdict for claim in claims]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(sorted(verdicts))]
    return f"{counted(len(claims), 'claim')}: {', '.join(counts)}"


def _whole(claim: Claim) -> list[str]:
    lines = [f"{claim.id}  ({claim.verdict})", "", *_wrapped(claim.claim)]
    lines += ["", "  said in", *(f"    {line}" for line in (claim.where, claim.source) if line)]
    lines += ["", f"  {claim.verdict}", *_wrapped(claim.answer, 4)] if claim.answer else []
    lines += ["", "  the rules", *(f"    {rule}" for rule in claim.rules)] if claim.rules else []
    lines += ["", "  measured by", f"    {claim.benchmark}"] if claim.benchmark else []
    if claim.program:
        lines += ["", "  a program", "", textwrap.indent(claim.program, " " * 4).rstrip()]
        lines += ["", "  prints", "", textwrap.indent(claim.prints, " " * 4).rstrip()]
    return lines


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)


def _json(claims: Sequence[Claim]) -> str:
    return json.dumps([_object(claim) for claim in claims], indent=1) + "\n"


def _object(claim: Claim) -> dict[str, object]:
    return {name: value for name, value in msgspec.to_builtins(claim).items() if name not in {"file", "line"}}


def _markdown(claims: Sequence[Claim]) -> str:
    return markdown(themes_of(claims))


def _found_text(findings: Sequence[Finding]) -> str:
    wrong = [finding for finding in findings if finding.faults]
    lines = [f"  {finding.claim.id}: {'; '.join(finding.faults)}" for finding in wrong]
    lines = ["the evidence does not bear out:", *lines, ""] if wrong else []
    rules = {rule for finding in findings for rule in finding.rules}
    programs = sum(bool(finding.claim.program) for finding in findings)
    ran = f"{counted(len(rules), 'rule')} and {counted(programs, 'program')} ran"
    ended = [tally([finding.claim for finding in findings]), f"{ran}; {_borne_out(findings)}", other_torch()]
    return "\n".join([*lines, *filter(None, ended), ""])


def _borne_out(findings: Sequence[Finding]) -> str:
    wrong = sum(bool(finding.faults) for finding in findings)
    return f"{counted(wrong, 'verdict')} not borne out" if wrong else "every verdict is borne out"


def _found_json(findings: Sequence[Finding]) -> str:
    objects = [{**_object(each.claim), "outcomes": each.rules, "faults": each.faults} for each in findings]
    return json.dumps(objects, indent=1) + "\n"


def _found_markdown(findings: Sequence[Finding]) -> str:
    rows = [
        f"| `{each.claim.id}` | {each.claim.verdict} | {'; '.join(each.faults) or 'borne out'} |" for each in findings
    ]
    return "\n".join(["| claim | verdict | evidence |", "|---|---|---|", *rows]) + "\n"
