"""Run deliberately wrong backends against the rules: which rule kills which, what survives, and what kills nothing.

A rule kills a mutant where the mutant does not pass it and torch-eager, whose mutant it is, does. Exit code 1 where a
mutant survives or a MUST rule that torch-eager keeps kills none of the mutants that it names.
"""

import argparse
import json
import sys
from collections.abc import Sequence

import msgspec

from hooklaw import killing
from hooklaw.cli import say
from hooklaw.cli.run import seconds
from hooklaw.killing import Matrix
from hooklaw.matrix import LIMIT
from hooklaw.outcome import Exit, Outcome
from hooklaw.spec import Level, Rule
from hooklaw.tally import counted

MODULE = "hooklaw_backends.mutants"
"""Named as text, since the law imports no backend."""


class Row(msgspec.Struct):
    """One mutant: what it breaks by what the rules say, and which rules it really does not pass."""

    mutant: str
    vice: str
    breaks: list[str]
    killed_by: list[str]
    spared_by: list[str]
    """Rules that name the mutant and pass it."""
    verdict: str
    outcomes: dict[str, str]


class Findings(msgspec.Struct):
    """The matrix, and what is wrong with it."""

    rows: list[Row]
    judged: int
    """How many MUST rules were asked for a mutant that they kill."""
    toothless: list[Rule]
    exempt: dict[str, str]
    not_built: list[str]

    def having(self, verdict: str) -> list[Row]:
        """Return the rows with this verdict."""
        return [row for row in self.rows if row.verdict == verdict]

    @property
    def exit(self) -> Exit:
        """Fail where a mutant survives or a rule is toothless."""
        return Exit.REGRESSION if self.having("survivor") or self.toothless else Exit.OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "-k",
        dest="parts",
        action="append",
        default=[],
        metavar="TEXT",
        help="mutants with this in their name; repeatable",
    )
    parser.add_argument("--mutants", default=MODULE, metavar="MODULE", help="other mutants than hooklaw's own")
    parser.add_argument(
        "--limit", type=seconds, default=LIMIT, metavar="SECONDS", help="limit of one rule on one mutant"
    )
    parser.add_argument("--format", choices=["text", "json", "markdown"], default="text")


def main(args: argparse.Namespace) -> int:
    """Run the matrix and print it."""
    matrix = killing.run(args.mutants, killing.choose_by(args.parts), args.limit)
    found = findings(matrix)
    say({"text": _text, "json": _json, "markdown": _markdown}[args.format](found))
    if args.format == "json":
        sys.stderr.write("\n".join(_faults(found)) + "\n")
    return found.exit.code


def findings(matrix: Matrix) -> Findings:
    """Hold what happened against what the rules say."""
    rules = matrix.hello.rules
    built = matrix.hello.vices
    rows = [_row(matrix, name) for name in matrix.results]
    judged = [rule for rule in rules if _is_judged(rule, matrix)]
    return Findings(
        rows=rows,
        judged=len(judged),
        toothless=[rule for rule in judged if not any(_kills(rule, name, matrix) for name in rule.mutants)],
        exempt=_exempt(matrix),
        not_built=sorted({name for rule in rules for name in rule.mutants} - set(built)),
    )


def _row(matrix: Matrix, name: str) -> Row:
    failed = matrix.results[name]
    breaks = [rule.id for rule in matrix.hello.rules if name in rule.mutants]
    killers = [rule.id for rule in matrix.hello.rules if rule.id in failed]
    sound = [id_ for id_ in breaks if matrix.hello.original[id_] is Outcome.PASS]
    return Row(
        mutant=name,
        vice=matrix.hello.vices[name],
        breaks=breaks,
        killed_by=killers,
        spared_by=[id_ for id_ in sound if id_ not in failed],
        verdict="survivor" if not killers else "killed" if set(killers) & set(breaks) else "hole",
        outcomes={id_: str(failed[id_].outcome) for id_ in killers},
    )


def _is_judged(rule: Rule, matrix: Matrix) -> bool:
    """Tell whether a rule can be asked what it kills: torch-eager keeps it, and every mutant that it names was run."""
    if rule.level is not Level.MUST or matrix.hello.original[rule.id] is not Outcome.PASS:
        return False
    everything = len(matrix.results) == len(matrix.hello.vices)
    named = [name for name in rule.mutants if name in matrix.hello.vices]
    return everything or (bool(named) and all(name in matrix.results for name in named))


def _kills(rule: Rule, mutant: str, matrix: Matrix) -> bool:
    return rule.id in matrix.results.get(mutant, {})


def _exempt(matrix: Matrix) -> dict[str, str]:
    musts = [rule for rule in matrix.hello.rules if rule.level is Level.MUST]
    outcomes = {rule.id: matrix.hello.original[rule.id] for rule in musts}
    return {id_: str(outcome) for id_, outcome in outcomes.items() if outcome is not Outcome.PASS}


def _json(found: Findings) -> str:
    return json.dumps([msgspec.to_builtins(row) for row in found.rows], indent=1) + "\n"


def _text(found: Findings) -> str:
    lines: list[str] = []
    for row in found.rows:
        lines += [f"{row.mutant}  [{row.verdict}]", f"  {row.vice}", f"  breaks     {', '.join(row.breaks) or '-'}"]
        lines += [f"  killed by  {', '.join(row.killed_by) or '-'}", ""]
    return "\n".join([*lines, *_faults(found)]) + "\n"


def _markdown(found: Findings) -> str:
    lines = ["| mutant | vice | breaks | killed by | |", "|---|---|---|---|---|"]
    for row in found.rows:
        cells = [f"`{row.mutant}`", row.vice.replace("|", "&#124;"), _ids(row.breaks), _ids(row.killed_by), row.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"- {line}" for line in _faults(found))]) + "\n"


def _ids(ids: Sequence[str]) -> str:
    return ", ".join(f"`{one}`" for one in ids) or "-"


def _faults(found: Findings) -> list[str]:
    """Say what is wrong, and end with the count."""
    return [
        *(f"survivor: {row.mutant} is killed by no rule" for row in found.having("survivor")),
        *(f"toothless: {rule.id} kills none of {', '.join(rule.mutants)}" for rule in found.toothless),
        *(
            f"hole: {row.mutant} is killed by {_few(row.killed_by)}, which does not name it"
            for row in found.having("hole")
        ),
        *(f"spared: {id_} names {row.mutant} and passes it" for row in found.rows for id_ in row.spared_by),
        *(f"exempt: {id_} is {outcome} on torch-eager itself" for id_, outcome in found.exempt.items()),
        *(f"not built: {name}" for name in found.not_built),
        _sum(found),
    ]


def _sum(found: Findings) -> str:
    many, lost = len(found.rows), len(found.having("survivor"))
    return (
        f"{counted(many, 'mutant')}: {many - lost} killed, {lost} survived, {len(found.having('hole'))} in a hole; "
        f"{found.judged - len(found.toothless)} of {counted(found.judged, 'MUST rule')} kill what they name"
    )


def _few(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return f"{ids[0]}{more}"
