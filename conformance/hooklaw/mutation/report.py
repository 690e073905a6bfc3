"""The report on mutants: which rules kill which mutants, which mutants survive, and which rules kill nothing."""

import json
from collections import Counter
from collections.abc import Sequence

import msgspec

from hooklaw.law.rule import Level, Rule
from hooklaw.mutation.matrix import ORIGINALS, Matrices, Matrix
from hooklaw.results.summary import counted
from hooklaw.results.verdict import Exit, Outcome

FORMATS = ("text", "json", "markdown")
SURVIVED = "survived"
KILLED = "killed"
UNDECLARED = "killed by an undeclared rule"
NOT_APPLICABLE = "not applicable"


class MutantReport(msgspec.Struct):
    """A mutant, the rules that name it, and the rules that kill it; an object of the JSON."""

    mutant: str
    of: str
    """The original backend."""
    vice: str
    under: str
    """The condition under which it is tried, if any."""
    breaks: list[str]
    killed_by: list[str]
    not_killed_by: list[str]
    """Rules that name the mutant but do not kill it."""
    errors: list[str]
    """Rules that end in an error of the mutant's own code or of theirs, which is no proof."""
    verdict: str
    outcomes: dict[str, str]
    why_not: str = ""
    """Why the mutant does not apply to the backend."""


class MutationReport(msgspec.Struct):
    """The matrix of mutants and rules, and its faults."""

    mutants: list[MutantReport]
    judged: int
    """How many MUST rules had to kill a mutant that they name."""
    kill_nothing: list[Rule]
    """MUST rules that kill none of the mutants that they name."""
    not_applicable: dict[str, str]
    """MUST rules that no original passes, with the outcomes."""
    missing: list[str]
    """Mutants that rules name and no backend that was loaded has."""
    not_built: dict[str, str]
    """Mutants that rules name and that cannot be built, with the reason."""
    counts: dict[str, int]
    """The number of mutants run, by original."""
    absent: dict[str, str]
    """Originals that cannot run here, and why."""
    kept: dict[str, str] = {}
    """For each original that the mutants are not written for, how many of the MUST rules it keeps."""

    def having(self, verdict: str) -> list[MutantReport]:
        """Return the mutants with this verdict."""
        return [mutant for mutant in self.mutants if mutant.verdict == verdict]

    @property
    def exit(self) -> Exit:
        """Return the regression exit if a mutant survives or a rule kills nothing that it names."""
        if self.mutants and len(self.having(NOT_APPLICABLE)) == len(self.mutants):
            return Exit.BROKEN
        return Exit.REGRESSION if self.having(SURVIVED) or self.kill_nothing else Exit.OK


def report(matrices: Matrices) -> MutationReport:
    """Compare the outcomes with the mutants that the rules name."""
    found = matrices.found
    rules, not_built = found[0].rules if found else [], matrices.not_built
    judged = [rule for rule in rules if _is_judged(rule, found)]
    built = {name for matrix in found for name in matrix.vices}
    of_any = [matrix for matrix in found if matrix.of not in ORIGINALS]
    return MutationReport(
        mutants=[_mutant(matrix, name) for matrix in found for name in matrix.results],
        judged=len(judged),
        kill_nothing=[rule for rule in judged if not any(_kills(rule, matrix) for matrix in found)],
        not_applicable={} if of_any else _not_applicable(rules, found),
        missing=[] if of_any else sorted({name for rule in rules for name in rule.mutants} - built - not_built.keys()),
        not_built={} if of_any else not_built,
        counts={matrix.of: len(matrix.results) for matrix in found},
        absent=matrices.absent,
        kept={matrix.of: _kept(matrix) for matrix in of_any},
    )


def render(found: MutationReport, form: str) -> str:
    """Return the report as text, JSON or markdown."""
    return {"text": _text, "json": _json, "markdown": _markdown}[form](found)


def faults(found: MutationReport) -> list[str]:
    """Return a line for each fault, and the counts last."""
    return [
        *(
            f"survived: {each.mutant} of {each.of} is killed by no rule{_errors(each)}"
            for each in found.having(SURVIVED)
        ),
        *(f"kills nothing it names: {rule.id} names {', '.join(rule.mutants)}" for rule in found.kill_nothing),
        *(f"{UNDECLARED}: {each.mutant} of {each.of} by {_few(each.killed_by)}" for each in found.having(UNDECLARED)),
        *(
            f"declared but not killed: {each.mutant} of {each.of} by {rule}"
            f"{', which ends in an error' if rule in each.errors else ''}"
            for each in found.mutants
            for rule in each.not_killed_by
        ),
        *(f"not applicable: {rule} is {outcomes}" for rule, outcomes in found.not_applicable.items()),
        *(f"not built: {name}: {why}" for name, why in found.not_built.items()),
        *(f"missing: {name}" for name in found.missing),
        *(f"skipped: mutants of {of}: {why}" for of, why in found.absent.items()),
        *_reasons(found),
        *found.kept.values(),
        _counts(found),
    ]


def _mutant(matrix: Matrix, name: str) -> MutantReport:
    failed = matrix.results[name]
    breaks = [rule.id for rule in matrix.rules if name in rule.mutants]
    killers = [rule.id for rule in matrix.rules if rule.id in failed]
    return MutantReport(
        mutant=name,
        of=matrix.of,
        vice=matrix.vices[name],
        under=matrix.under.get(name, ""),
        breaks=breaks,
        killed_by=killers,
        not_killed_by=[rule for rule in breaks if _is_kept(rule, matrix) and rule not in failed],
        errors=matrix.errors.get(name, []),
        verdict=NOT_APPLICABLE if name in matrix.why_not else _verdict(killers, breaks, matrix.under.get(name)),
        outcomes={rule: str(failed[rule]) for rule in killers},
        why_not=matrix.why_not.get(name, ""),
    )


def _verdict(killers: Sequence[str], breaks: Sequence[str], condition: str | None) -> str:
    """Return what came of a mutant; one that is wrong under a condition alone need not be named by a rule."""
    if not killers:
        return SURVIVED
    return KILLED if condition is not None or set(killers) & set(breaks) else UNDECLARED


def _is_kept(rule: str, matrix: Matrix) -> bool:
    return matrix.original.get(rule) is Outcome.PASS


def _is_judged(rule: Rule, found: Sequence[Matrix]) -> bool:
    """Whether a MUST rule had to kill a mutant: an original passes it, and all mutants of it that it names ran."""
    keeping = [matrix for matrix in found if _is_kept(rule.id, matrix)]
    named = [(name, matrix) for matrix in keeping for name in rule.mutants if _is_tried(name, matrix)]
    if rule.level is not Level.MUST or not keeping:
        return False
    everything = all(len(matrix.results) == len(matrix.vices) and matrix.of in ORIGINALS for matrix in keeping)
    return everything or (bool(named) and all(name in matrix.results for name, matrix in named))


def _is_tried(name: str, matrix: Matrix) -> bool:
    return name in matrix.vices and name not in matrix.why_not


def _kept(matrix: Matrix) -> str:
    musts = [rule for rule in matrix.rules if rule.level is Level.MUST]
    kept = [rule for rule in musts if _is_kept(rule.id, matrix)]
    named = [rule for rule in kept if any(_is_tried(name, matrix) for name in rule.mutants)]
    return (
        f"{matrix.of} keeps {counted(len(kept), 'MUST rule')} of {len(musts)}; {len(named)} of them "
        "name a mutant that applies to it, and no other rule is shown to be able to fail there"
    )


def _kills(rule: Rule, matrix: Matrix) -> bool:
    """Whether the rule kills a mutant of this original that it names."""
    return any(rule.id in matrix.results.get(name, {}) for name in rule.mutants)


def _not_applicable(rules: Sequence[Rule], found: Sequence[Matrix]) -> dict[str, str]:
    musts = [rule.id for rule in rules if rule.level is Level.MUST]
    return {
        rule: ", ".join(f"{matrix.original[rule]} on {matrix.of}" for matrix in found)
        for rule in musts
        if not any(matrix.original.get(rule, Outcome.PASS) is Outcome.PASS for matrix in found)
    }


def _json(found: MutationReport) -> str:
    return json.dumps([msgspec.to_builtins(mutant) for mutant in found.mutants], indent=1) + "\n"


def _text(found: MutationReport) -> str:
    lines: list[str] = []
    for each in found.mutants:
        if each.why_not:  # said below, once for each reason
            continue
        lines += [
            f"{each.mutant} of {each.of}  [{each.verdict}]",
            f"  {each.vice}" + (f" Tried under {each.under}." if each.under else ""),
            f"  breaks     {', '.join(each.breaks) or '-'}",
            f"  killed by  {', '.join(each.killed_by) or '-'}",
            "",
        ]
    return "\n".join([*lines, *faults(found)]) + "\n"


def _markdown(found: MutationReport) -> str:
    lines = ["| mutant | of | vice | breaks | killed by | |", "|---|---|---|---|---|---|"]
    for each in found.mutants:
        vice = each.vice.replace("|", "&#124;")
        cells = [f"`{each.mutant}`", each.of, vice, _ids(each.breaks), _ids(each.killed_by), each.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"- {line}" for line in faults(found))]) + "\n"


def _ids(ids: Sequence[str]) -> str:
    return ", ".join(f"`{rule}`" for rule in ids) or "-"


def _counts(found: MutationReport) -> str:
    survived, undeclared, inapt = (len(found.having(each)) for each in (SURVIVED, UNDECLARED, NOT_APPLICABLE))
    each = ", ".join(f"{counted(count, 'mutant')} of {of}" for of, count in found.counts.items())
    return (
        f"{each}: {len(found.mutants) - survived - inapt} killed, {survived} survived, "
        + (f"{inapt} not applicable, " if found.kept else "")
        + f"{undeclared} killed by undeclared rules; "
        f"{found.judged - len(found.kill_nothing)} of {counted(found.judged, 'MUST rule')} kill what they name"
    )


def _reasons(found: MutationReport) -> list[str]:
    """Return a line for each reason why mutants do not apply, the most common first."""
    reasons = Counter((each.of, each.why_not) for each in found.having(NOT_APPLICABLE))
    return [f"not applicable: {counted(many, 'mutant')} of {of}: {why}" for (of, why), many in reasons.most_common()]


def _errors(mutant: MutantReport) -> str:
    return f", but ends in an error in {_few(mutant.errors)}" if mutant.errors else ""


def _few(ids: Sequence[str]) -> str:
    return ids[0] + (f" and {len(ids) - 1} more" if len(ids) > 1 else "")
