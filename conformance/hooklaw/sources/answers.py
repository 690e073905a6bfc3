"""Answers: what the rules and the readings say of each sentence in the kept table, and what is wrong with them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hooklaw.law.rule import Basis, Level, Rule
from hooklaw.sources.readings import Reading, Readings
from hooklaw.sources.table import Table, key_of


class Answer(msgspec.Struct):
    """What is said of one sentence: the rules that state or imply it, or why there is none."""

    stated: list[str] = []
    implied: list[str] = []
    reasons: list[str] = []

    @property
    def rules(self) -> list[str]:
        """The rules that answer the sentence."""
        return [*self.stated, *self.implied]

    @property
    def known(self) -> bool:
        """Whether the sentence has a reading."""
        return bool(self.stated or self.implied or self.reasons)


Answers = Mapping[str, list[Answer]]
"""By the key of the source, in the order of its sentences."""


def answers(rules: Iterable[Rule], readings: Readings, table: Table) -> Answers:
    """Return what is said of each sentence in the table; `complaints` says what is said of others."""
    found = {key: [Answer([], [], []) for _ in marks] for key, marks in table.sources().items()}
    for rule in rules:
        for source in rule.sources:
            for answer in _at(found, key_of(source), source.sentences):
                answer.stated.append(rule.id)
    for key, reading in readings.sources.items():
        _read(found, key, reading)
    return found


def _read(found: Answers, key: str, reading: Reading) -> None:
    for each in reading.implied:
        for answer in _at(found, key, [each.sentence]):
            answer.implied += each.rules
    for ordinal, reason in reading.reasons():
        for answer in _at(found, key, [ordinal]):
            answer.reasons.append(reason)
    for answer in found.get(key, []) if reading.rest else []:
        if not answer.known:
            answer.reasons.append(reading.rest)


def _at(found: Answers, key: str, ordinals: Iterable[int]) -> Iterator[Answer]:
    here = found.get(key, [])
    yield from (here[ordinal - 1] for ordinal in ordinals if 1 <= ordinal <= len(here))


def unsourced(rules: Iterable[Rule]) -> list[str]:
    """Return the documented rules that name no sentence."""
    documented = (rule for rule in rules if rule.basis is Basis.DOCUMENTED)
    return [rule.id for rule in documented if not any(source.sentences for source in rule.sources)]


def complaints(rules: Sequence[Rule], readings: Readings, table: Table) -> list[str]:
    """Return what is wrong with the readings: a line for each fault."""
    said = answers(rules, readings, table)
    known = {rule.id: rule for rule in rules}
    found = [
        line for key, reading in readings.sources.items() for line in _misread(key, reading, said, known, readings)
    ]
    for key, each in said.items():
        found += (f"{key}: sentence {at} {what}" for at, one in enumerate(each, start=1) for what in _weak(one, known))
    return found


def _misread(key: str, reading: Reading, said: Answers, known: Mapping[str, Rule], readings: Readings) -> Iterator[str]:
    if key not in said:
        yield f"{key}: no such source is counted: look at its name, or renew the table of sentences"
        return
    ordinals = [*(each.sentence for each in reading.implied), *(at for at, _ in reading.reasons())]
    yield from (
        f"{key}: sentence {at} does not exist, there are {len(said[key])}"
        for at in ordinals
        if not 1 <= at <= len(said[key])
    )
    yield from (f"{key}: {rule} is no rule" for each in reading.implied for rule in each.rules if rule not in known)
    yield from (
        f"{key}: {name} is no class of reasons" for name in reading.no_rule if name not in readings.reasons.classes
    )


def _weak(answer: Answer, known: Mapping[str, Rule]) -> Iterator[str]:
    """Yield what is wrong with the answer to a sentence."""
    if answer.reasons and (answer.rules or len(answer.reasons) > 1):
        yield f"has several readings: {', '.join([*answer.rules, *answer.reasons])}"
    rules = [known[name] for name in answer.rules if name in known]
    if rules and all(rule.basis is Basis.OBSERVED for rule in rules):
        yield f"is answered by observed rules alone: {', '.join(answer.rules)}"
    elif rules and not answer.stated and all(rule.level is Level.MAY for rule in rules):
        yield f"is implied by MAY rules alone: {', '.join(answer.rules)}"
