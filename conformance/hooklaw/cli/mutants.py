"""Run mutants, which are deliberately wrong backends, against the rules, and show which rules kill which mutants.

A rule kills a mutant if the original backend passes it and the mutant does not. Exit code 1 if a mutant survives, or
if a MUST rule that an original backend passes kills none of the mutants that it names.
"""

import argparse
import json
import sys
from collections.abc import Sequence

import msgspec

from hooklaw.cli import say
from hooklaw.cli.run import seconds
from hooklaw.law.rule import Level, Rule
from hooklaw.mutation import matrix
from hooklaw.mutation.matrix import ORIGINALS, Matrices, Matrix
from hooklaw.mutation.worker import LIMIT
from hooklaw.results.summary import counted
from hooklaw.results.verdict import Exit, Outcome

MODULE = "hooklaw_backends.mutants"
"""A string, since this package imports no backend."""


class Row(msgspec.Struct):
    """A mutant, the rules that name it, and the rules that kill it."""

    mutant: str
    of: str
    """The original backend."""
    vice: str
    breaks: list[str]
    killed_by: list[str]
    spared_by: list[str]
    """Rules that name the mutant but do not kill it."""
    verdict: str
    outcomes: dict[str, str]


class Findings(msgspec.Struct):
    """The matrix of mutants and rules, and its faults."""

    rows: list[Row]
    judged: int
    """How many MUST rules had to kill a mutant that they name."""
    toothless: list[Rule]
    exempt: dict[str, str]
    """MUST rules that no original passes, with the outcomes."""
    not_built: list[str]
    counts: dict[str, int]
    """The number of mutants run, by original."""
    absent: dict[str, str]
    """Originals that cannot run here, and why."""

    def having(self, verdict: str) -> list[Row]:
        """Return the rows with this verdict."""
        return [row for row in self.rows if row.verdict == verdict]

    @property
    def exit(self) -> Exit:
        """Return the regression exit if a mutant survives or a rule is toothless."""
        return Exit.REGRESSION if self.having("survivor") or self.toothless else Exit.OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "-k",
        dest="parts",
        action="append",
        default=[],
        metavar="TEXT",
        help="only mutants whose name contains this text; repeatable",
    )
    parser.add_argument(
        "--of",
        action="append",
        default=[],
        choices=ORIGINALS,
        help="only mutants of this backend; repeatable; default: all that are installed",
    )
    parser.add_argument("--mutants", default=MODULE, metavar="MODULE", help="module of mutants; default: hooklaw's own")
    parser.add_argument(
        "--limit", type=seconds, default=LIMIT, metavar="SECONDS", help="time limit of one rule on one mutant"
    )
    parser.add_argument("--format", choices=["text", "json", "markdown"], default="text")


def main(args: argparse.Namespace) -> int:
    """Run the matrix and print it."""
    matrices = matrix.run(args.mutants, list(dict.fromkeys(args.of)), matrix.choose_by(args.parts), args.limit)
    found = findings(matrices)
    say({"text": _text, "json": _json, "markdown": _markdown}[args.format](found))
    if args.format == "json":
        sys.stderr.write("\n".join(_faults(found)) + "\n")
    return found.exit.code


def findings(matrices: Matrices) -> Findings:
    """Compare the outcomes with the mutants that the rules name."""
    found = matrices.found
    rules = found[0].hello.rules if found else []
    judged = [rule for rule in rules if _is_judged(rule, found)]
    built = {name for matrix in found for name in matrix.hello.vices}
    return Findings(
        rows=[_row(matrix, name) for matrix in found for name in matrix.results],
        judged=len(judged),
        toothless=[rule for rule in judged if not any(_kills(rule, matrix) for matrix in found)],
        exempt=_exempt(rules, found),
        not_built=sorted({name for rule in rules for name in rule.mutants} - built),
        counts={matrix.of: len(matrix.results) for matrix in found},
        absent=matrices.absent,
    )


def _row(matrix: Matrix, name: str) -> Row:
    failed = matrix.results[name]
    breaks = [rule.id for rule in matrix.hello.rules if name in rule.mutants]
    killers = [rule.id for rule in matrix.hello.rules if rule.id in failed]
    return Row(
        mutant=name,
        of=matrix.of,
        vice=matrix.hello.vices[name],
        breaks=breaks,
        killed_by=killers,
        spared_by=[id_ for id_ in breaks if _is_kept(id_, matrix) and id_ not in failed],
        verdict="survivor" if not killers else "killed" if set(killers) & set(breaks) else "hole",
        outcomes={id_: str(failed[id_].outcome) for id_ in killers},
    )


def _is_kept(rule: str, matrix: Matrix) -> bool:
    return matrix.hello.original[rule] is Outcome.PASS


def _is_judged(rule: Rule, found: Sequence[Matrix]) -> bool:
    """Whether a MUST rule had to kill a mutant: an original passes it, and all mutants of it that it names ran."""
    keeping = [matrix for matrix in found if _is_kept(rule.id, matrix)]
    named = [(name, matrix) for matrix in keeping for name in rule.mutants if name in matrix.hello.vices]
    if rule.level is not Level.MUST or not keeping:
        return False
    everything = all(len(matrix.results) == len(matrix.hello.vices) for matrix in keeping)
    return everything or (bool(named) and all(name in matrix.results for name, matrix in named))


def _kills(rule: Rule, matrix: Matrix) -> bool:
    """Whether the rule kills a mutant of this original that it names."""
    return any(rule.id in matrix.results.get(name, {}) for name in rule.mutants)


def _exempt(rules: Sequence[Rule], found: Sequence[Matrix]) -> dict[str, str]:
    musts = [rule.id for rule in rules if rule.level is Level.MUST]
    return {
        id_: ", ".join(f"{matrix.hello.original[id_]} on {matrix.of}" for matrix in found)
        for id_ in musts
        if not any(_is_kept(id_, matrix) for matrix in found)
    }


def _json(found: Findings) -> str:
    return json.dumps([msgspec.to_builtins(row) for row in found.rows], indent=1) + "\n"


def _text(found: Findings) -> str:
    lines: list[str] = []
    for row in found.rows:
        lines += [
            f"{row.mutant} of {row.of}  [{row.verdict}]",
            f"  {row.vice}",
            f"  breaks     {', '.join(row.breaks) or '-'}",
        ]
        lines += [f"  killed by  {', '.join(row.killed_by) or '-'}", ""]
    return "\n".join([*lines, *_faults(found)]) + "\n"


def _markdown(found: Findings) -> str:
    lines = ["| mutant | of | vice | breaks | killed by | |", "|---|---|---|---|---|---|"]
    for row in found.rows:
        cells = [f"`{row.mutant}`", row.of, row.vice.replace("|", "&#124;"), _ids(row.breaks), _ids(row.killed_by)]
        lines.append(f"| {' | '.join([*cells, row.verdict])} |")
    return "\n".join([*lines, "", *(f"- {line}" for line in _faults(found))]) + "\n"


def _ids(ids: Sequence[str]) -> str:
    return ", ".join(f"`{rule}`" for rule in ids) or "-"


def _faults(found: Findings) -> list[str]:
    """Return a line for each fault, and the counts last."""
    return [
        *(f"survivor: {row.mutant} of {row.of} is killed by no rule" for row in found.having("survivor")),
        *(f"toothless: {rule.id} kills none of {', '.join(rule.mutants)}" for rule in found.toothless),
        *(
            f"hole: {row.mutant} of {row.of} is killed by {_few(row.killed_by)}, which does not name it"
            for row in found.having("hole")
        ),
        *(f"spared: {id_} names {row.mutant} of {row.of}: no kill" for row in found.rows for id_ in row.spared_by),
        *(f"exempt: {id_} is {outcomes}" for id_, outcomes in found.exempt.items()),
        *(f"not built: {name}" for name in found.not_built),
        *(f"skipped: mutants of {of}: {why}" for of, why in found.absent.items()),
        _sum(found),
    ]


def _sum(found: Findings) -> str:
    many, lost = len(found.rows), len(found.having("survivor"))
    each = ", ".join(f"{counted(count, 'mutant')} of {of}" for of, count in found.counts.items())
    return (
        f"{each}: {many - lost} killed, {lost} survived, {len(found.having('hole'))} killed by undeclared rules; "
        f"{found.judged - len(found.toothless)} of {counted(found.judged, 'MUST rule')} kill what they name"
    )


def _few(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return f"{ids[0]}{more}"
