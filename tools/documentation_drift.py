"""Print docs/documentation-drift.md: `python tools/documentation_drift.py [--write] WHEEL ...`.

Each WHEEL is a wheel of some version of torch, of any platform, or a folder that holds a torch; nothing is imported.
Wheels for aarch64 are small:
pip download --no-deps --only-binary=:all: --platform manylinux_2_28_aarch64 torch==2.9.1
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from compatibility import spans, table
from packaging.version import Version as Release

from hooklaw.errors import HooklawError
from hooklaw.law.rule import Rule
from hooklaw.sources.answers import Answer, answers
from hooklaw.sources.coverage import Drift, Read, Sentence, Status, drift, read_text, standings
from hooklaw.sources.fingerprints import fingerprint
from hooklaw.sources.libraries import read_library
from hooklaw.sources.readings import load_readings
from hooklaw.sources.survey import all_rules
from hooklaw.sources.table import key_of, load_table, named_docstrings

PAGE = Path(__file__).parents[1] / "docs" / "documentation-drift.md"
MANY = 4
"""How many rules are named in a row; the others are counted."""
HEAD = """\
# What the documentation promised when

The docstrings of {number} versions of torch, held against those of {pinned}, from which the rules were written.
A sentence is the same in another version if it has the same words; its place may differ.
The sentences are those of [documentation coverage](coverage.md):
of docstrings that mention hooks, saved tensors, graphs, grad modes or checkpoints.
Pages are not part of torch, so they are not compared.
Whether the rules hold on each version is on [another page](torch-versions.md).

`tools/documentation_drift.py` makes this page from the wheels, which are read and not imported.

"""
RULES = """\
A rule stands here if some version does not have all of the sentences that state it, in the same words.
Rules that a page states are left out.
"""
SAME = "the same"
COUNTS = ("torch", "objects", "sentences", "the same", "others", "missing")
PROMISED = ("rule", "level", "its sentences")
STEP = ("object", *Drift, "rules that came", "rules that went")


class Version(NamedTuple):
    """A version of torch, with the sentences of its docstrings by the key of the source."""

    name: str
    read: dict[str, list[Read]]

    def marks(self) -> dict[str, list[str]]:
        """Return the fingerprints, as a kept table has them."""
        return {key: [each.mark for each in found] for key, found in self.read.items()}


class Law(NamedTuple):
    """What the rules say of the sentences of the version from which they were written."""

    rules: Sequence[Rule]
    pinned: str
    answers: dict[tuple[str, str], Answer]
    """By the source and the fingerprint of the sentence."""

    def of(self, source: str, mark: str) -> Answer:
        """Return what is said of a sentence in any version: nothing, if the pinned one lacks it."""
        return self.answers.get((source, mark), Answer())


def law() -> Law:
    """Return the law that comes with hooklaw."""
    rules, kept = all_rules(), load_table()
    said = answers(rules, load_readings(), kept)
    by_mark = {
        (key, mark): answer
        for key, marks in kept.sources().items()
        for mark, answer in zip(marks, said[key], strict=True)
    }
    return Law(rules, kept.torch, by_mark)


def read(path: Path, rules: Sequence[Rule]) -> Version:
    """Return the docstrings of a wheel; what is compiled is left out."""
    library = read_library(path)
    found = library.counted({*load_table().docstring, *named_docstrings(rules)}, load_readings())
    return Version(library.version, {f"docstring {name}": read_text(text) for name, text in found.items() if text})


def counts(versions: Sequence[Version], pinned: Version) -> Iterator[list[str]]:
    """Yield a row for each version: how many sentences it has, and how many of the pinned version's."""
    for version in versions:
        total = sum(map(len, version.read.values()))
        found = standings(version.read, pinned.marks(), _silent(pinned.marks()))
        missing = sum(each.status is Status.VANISHED for each in found)
        same = len(found) - missing - sum(not each.kept for each in found)
        yield [version.name, *map(str, (len(version.read), total, same, total - same, missing))]


def _silent(marks: Mapping[str, Sequence[str]]) -> dict[str, list[Answer]]:
    return {key: [Answer()] * len(each) for key, each in marks.items()}


def step(before: Version, after: Version, known: Law) -> Iterator[list[str]]:
    """Yield a row for each object whose docstring differs between two versions."""
    kept = before.marks()
    said = {key: [known.of(key, mark) for mark in marks] for key, marks in kept.items()}
    found: dict[str, list[tuple[Drift, Sentence]]] = {}
    for what, each in drift(standings(after.read, kept, said)):
        found.setdefault(each.source, []).append((what, each))
    for source, its in found.items():
        number = Counter(what for what, _ in its)
        came = [rule for what, each in its if each.text for rule in known.of(source, fingerprint(each.text)).rules]
        went = [rule for _, each in its for rule in each.rules]
        yield [f"`{source.partition(' ')[2]}`", *(str(number[what] or "") for what in Drift), _few(came), _few(went)]


def _few(rules: Sequence[str]) -> str:
    each = [*dict.fromkeys(rules)]
    return ", ".join(
        [*(f"`{rule}`" for rule in each[:MANY]), *([f"{len(each) - MANY} more"] if len(each) > MANY else [])]
    )


def promised(versions: Sequence[Version], rules: Sequence[Rule]) -> Iterator[list[str]]:
    """Yield a row for each documented rule that the docstrings of some version do not state in the same words."""
    kept = load_table()
    marks = {version.name: {key: {*found} for key, found in version.marks().items()} for version in versions}
    for rule in rules:
        sources = [source for source in rule.sources if source.kind == "docstring" and source.sentences]
        wanted = [(key_of(source), kept.find(source)[at - 1]) for source in sources for at in source.sentences]
        states = [_state(wanted, marks[version.name]) for version in versions]
        if wanted and not only_docstrings(rule) and SAME in states:
            continue
        if wanted and {*states} != {SAME}:
            yield [f"`{rule.id}`", str(rule.level), spans(states, [version.name for version in versions])]


def only_docstrings(rule: Rule) -> bool:
    """Whether no page states the rule."""
    return all(source.kind in {"docstring", "observed"} for source in rule.sources if source.sentences)


def _state(wanted: Sequence[tuple[str, str]], marks: Mapping[str, set[str]]) -> str:
    here = [mark in marks.get(key, ()) for key, mark in wanted]
    if all(here):
        return SAME
    if any(here):
        return "some in the same words"
    return "in other words, or not at all" if any(key in marks for key, _ in wanted) else "no such object"


def page(versions: Sequence[Version], known: Law) -> str:
    """Return the page; the pinned version must be among the versions."""
    pinned = next((version for version in versions if version.name == known.pinned), None)
    if pinned is None:
        sys.exit(f"the rules were written from torch {known.pinned}: name a wheel of that version too")
    parts = [HEAD.format(number=len(versions), pinned=pinned.name), table(COUNTS, counts(versions, pinned))]
    parts += [
        "## The rules whose sentences are not in every version",
        RULES,
        table(PROMISED, promised(versions, known.rules)),
    ]
    for before, after in pairwise(versions):
        parts += [f"## From {before.name} to {after.name}", table(STEP, step(before, after, known))]
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def main(args: Sequence[str]) -> None:
    """Print or write the page."""
    paths = [Path(arg) for arg in args if arg != "--write"]
    if not paths:
        sys.exit("name at least one wheel of torch: python tools/documentation_drift.py [--write] WHEEL ...")
    known = law()
    try:
        versions = sorted((read(path, known.rules) for path in paths), key=lambda version: Release(version.name))
    except HooklawError as error:
        sys.exit(f"documentation_drift: {error}")
    text = page(versions, known)
    if "--write" in args:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
