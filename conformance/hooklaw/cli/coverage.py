"""Print how far the rules cover the documentation of torch, sentence by sentence.

A sentence is covered by a rule, has no rule for a reason, is uncovered, or has vanished from this torch.
Of another version than the rules were written from, what is new, changed or gone is printed, with the rules it touches.

Examples:
    hooklaw coverage
    hooklaw coverage torch.Tensor.register_hook
    hooklaw coverage --uncovered --format json
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from hooklaw.cli import say
from hooklaw.errors import DocumentationError, did_you_mean
from hooklaw.results.summary import counted
from hooklaw.results.text import code, markdown
from hooklaw.results.verdict import Exit
from hooklaw.sources.coverage import Drift, Sentence, Status, drift
from hooklaw.sources.survey import Survey, survey

LEFT = (Status.UNCOVERED, Status.VANISHED)
"""What nothing is said of, or what is said of nothing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="print each sentence of the sources with this name")
    parser.add_argument("--uncovered", action="store_true", help="print only sentences without a reading")
    parser.add_argument("--notes", type=Path, metavar="DIR", help="read pages too, laid out as docs/source of torch")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="read this wheel, or a folder that holds a torch")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if another version differs")
    parser.add_argument("--format", choices=[*FORMATS], default="text")


def main(args: argparse.Namespace) -> int:
    """Print the coverage; the exit code is 1 if a sentence or a rule is left over."""
    found = survey(args.notes, args.wheel)
    shown = [each for each in _selected(found, args.names) if each.status is Status.UNCOVERED or not args.uncovered]
    narrowed = bool(args.names) or args.uncovered
    say(FORMATS[args.format](found, shown if narrowed or args.format == "json" else _needing_a_look(found), narrowed))
    return Exit.OK.code if found.holds(strict=args.strict) else Exit.REGRESSION.code


def _selected(found: Survey, names: Sequence[str]) -> list[Sentence]:
    sources = {each.source.partition(" ")[2] or each.source for each in found.sentences}
    for name in names:
        if not any(name in source for source in sources):
            hint = did_you_mean(name, sources, "`hooklaw coverage --format json` has all names")
            raise DocumentationError(f"no source of the documentation has {name!r} in its name: {hint}")
    return [each for each in found.sentences if not names or any(name in each.source for name in names)]


def _needing_a_look(found: Survey) -> list[Sentence]:
    if found.drifted:
        return [each for _, each in drift(found.sentences)]
    return [each for each in found.sentences if each.status in LEFT]


def _text(found: Survey, shown: Sequence[Sentence], narrowed: bool) -> str:  # noqa: FBT001 - as the other formats
    words = _words(found)
    lines = [line for source, each in _by_source(shown) for line in _source(source, each, words)]
    if not narrowed:
        lines += [f"{rule}: a documented rule that names no sentence" for rule in found.unsourced]
        lines += [*found.complaints, *_unread(found)]
    return "\n".join([*lines, *_counts(found)]) + "\n"


def _source(source: str, each: Sequence[Sentence], words: dict[Sentence, str]) -> Iterator[str]:
    if len(each) > 1 and all(one.status is Status.VANISHED for one in each) and each[-1].ordinal == len(each):
        rules = dict.fromkeys(rule for one in each for rule in one.rules)
        yield f"{source}: gone, with {counted(len(each), 'sentence')}" + (f" of {', '.join(rules)}" if rules else "")
        return
    yield f"{source}:"
    for one in each:
        said = ", ".join(one.rules) or one.reason
        yield f"{one.ordinal:4} {words[one]}{f' ({said})' if said else ''}  {one.text}".rstrip()


def _json(found: Survey, shown: Sequence[Sentence], narrowed: bool) -> str:  # noqa: FBT001 - as the other formats
    del narrowed  # what is shown says it
    words = _words(found)
    made = {
        "torch": found.torch,
        "pinned": found.pinned,
        "counts": {str(status): count for status, count in _count(found).items()},
        "sentences": [
            {
                "source": each.source,
                "ordinal": each.ordinal,
                "status": words[each],
                "rules": each.rules,
                "reason": each.reason,
            }
            for each in shown
        ],
        "unsourced": found.unsourced,
        "complaints": found.complaints,
        "unread": [*dict.fromkeys(found.unread)],
    }
    return json.dumps(made, indent=1) + "\n"


def _markdown(found: Survey, shown: Sequence[Sentence], narrowed: bool) -> str:  # noqa: FBT001 - as the other formats
    del narrowed  # what is shown says it
    words = _words(found)
    rows = [(code(each.source), str(each.ordinal), words[each], *_said(each)) for each in shown]
    lines = [
        f"| {' | '.join(row)} |" for row in [("source", "sentence", "stands", "rules or reason"), ("---",) * 4, *rows]
    ]
    said = [f"- {markdown(line)}" for line in [*found.unsourced, *found.complaints, *_unread(found), *_counts(found)]]
    return "\n".join([*(lines if rows else []), "", *said]) + "\n"


def _said(each: Sentence) -> Iterator[str]:
    yield ", ".join(map(code, each.rules)) or markdown(each.reason)


def _by_source(shown: Iterable[Sentence]) -> Iterator[tuple[str, list[Sentence]]]:
    for source, each in groupby(shown, attrgetter("source")):
        yield source, [*each]


def _count(found: Survey) -> dict[Status, int]:
    count = Counter(each.status for each in found.sentences)
    return {status: count[status] for status in Status}


def _unread(found: Survey) -> Iterator[str]:
    objects = [name for name in dict.fromkeys(found.unread) if name.startswith("torch.")]
    pages = [name for name in dict.fromkeys(found.unread) if not name.startswith("torch.")]
    if objects:
        yield f"compiled, so not read from the files: {', '.join(objects)}"
    if pages:
        yield f"not read, since pages are not part of torch (--notes DIR): {', '.join(pages)}"


def _counts(found: Survey) -> Iterator[str]:
    words = [f"{count} {status}" for status, count in _count(found).items()]
    yield f"torch {found.torch}: {', '.join(words)}, {len(found.unsourced)} unsourced"
    if found.complaints:
        yield f"{counted(len(found.complaints), 'complaint')} about readings"
    if found.drifted:
        what = Counter(word for word, _ in drift(found.sentences))
        words = [f"{what[word]} {word}" for word in Drift]
        yield f"the rules are of torch {found.pinned}; since then, or before it: {', '.join(words)}"


def _words(found: Survey) -> dict[Sentence, str]:
    """Return what is said of a sentence in a word or two."""
    changed: dict[Sentence, str] = {each: str(word) for word, each in drift(found.sentences)} if found.drifted else {}
    return {each: changed.get(each, str(each.status)) for each in found.sentences}


FORMATS: dict[str, Callable[[Survey, Sequence[Sentence], bool], str]] = {
    "text": _text,
    "json": _json,
    "markdown": _markdown,
}
