"""Run random hook programs on a backend and on the reference engine, and report each way in which they differ.

Programs that crash or hang are contained. What differs is shrunk and told once, and what the backend's findings file
lists is known. Exit code 1 where something is new.
"""

import argparse
import resource
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from hooklaw.cli import fuzz_output, say
from hooklaw.cli.run import LONGEST, seconds
from hooklaw.errors import OutputError, ProgramError
from hooklaw.fuzz.campaign import known_findings
from hooklaw.fuzz.campaign.findings import PART, Book
from hooklaw.fuzz.campaign.process import LIMIT, LONG_LIMIT, Held
from hooklaw.fuzz.campaign.schedule import Hunt
from hooklaw.fuzz.campaign.tasks import Given, Programs, Random
from hooklaw.fuzz.program import dump, parse
from hooklaw.fuzz.replay.operations import OPERATIONS
from hooklaw.fuzz.replay.required_capabilities import ALWAYS
from hooklaw.law.rule import Rule, load_rules
from hooklaw.results.records import make_room
from hooklaw.results.summary import counted
from hooklaw.results.verdict import Exit

PROGRAMS = 10_000
STOP_AFTER = 5
CORPUS = "corpus"
"""Stands for the programs that hooklaw brings, unless there is a file of that name."""
OWN_CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus.jsonl"
EVERY = 10.0
"""Seconds between two lines of progress, where the standard error is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--backend", default="torch-eager", metavar="NAME[:ARG]", help="default torch-eager")
    parser.add_argument("--programs", type=count, metavar="N", help=f"how many programs; default {PROGRAMS}")
    parser.add_argument("--minutes", type=minutes, metavar="M", help="as many programs as fit, unless --programs")
    parser.add_argument(
        "--seed", type=count, default=0, metavar="S", help="the same seed, the same programs; default 0"
    )
    parser.add_argument(
        "--replay",
        nargs="?",
        const=CORPUS,
        metavar="FILE",
        help="programs from a file of JSON lines instead, - from stdin; those that hooklaw brings if no file is named",
    )
    parser.add_argument("--jobs", type=positive, default=1, metavar="J", help="processes side by side; default 1")
    parser.add_argument("--known", type=Path, metavar="FILE", help="findings file instead of the backend's own")
    parser.add_argument("--all-known", action="store_true", help="shrink and print known findings in full too")
    parser.add_argument("--no-shrink", action="store_true", help="report programs as they were drawn")
    parser.add_argument(
        "--stop-after", type=count, default=STOP_AFTER, metavar="N", help=f"new findings, 0 never; default {STOP_AFTER}"
    )
    parser.add_argument(
        "--limit",
        type=seconds,
        metavar="SECONDS",
        help=f"limit of one program; {LIMIT:.0f}, or {LONG_LIMIT:.0f} compiled",
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="append the shrunk programs, as --replay reads them")
    parser.add_argument("--format", choices=["text", "json"], default="text")


def count(text: str) -> int:
    """Read a number from 0 on; argparse words the refusal from the function's name."""
    number = int(text)
    if not 0 <= number < LONGEST:
        raise ValueError
    return number


def positive(text: str) -> int:
    """Read a number from 1 on."""
    return count(text) or int("none")


def minutes(text: str) -> float:
    """Read a number of minutes above zero."""
    return seconds(text)


def main(args: argparse.Namespace) -> int:
    """Hunt, print what was found, and return the exit code."""
    if args.save:
        _check_room(args.save)
    programs, total = _programs(args)
    held = Held(args.backend)
    _check_use(held)
    rules = {id_: found.rule for id_, found in load_rules().items()}
    path: Path | None = args.known or getattr(held.backend, "findings", None)
    entries = known_findings.read(path, rules) if path else []
    hunt = Hunt(held, programs, total, args.jobs, args.limit or held.limit, PART * (args.stop_after or STOP_AFTER))
    return _hunt(args, hunt, entries, rules)


def _hunt(args: argparse.Namespace, hunt: Hunt, entries: list[known_findings.Known], rules: dict[str, Rule]) -> int:
    start = monotonic()
    book = Book(hunt, entries, shrink=not args.no_shrink, in_full=args.all_known)
    progress = Progress(hunt.held.spec, book, start)
    until = start + args.minutes * 60 if args.minutes else float("inf")
    interrupted = False
    try:
        for piece in hunt._replace(until=until, tick=progress.tick).pieces():
            book.take(piece)
            if book.enough(args.stop_after):
                break
        book.finish()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.end()
    run = fuzz_output.Ran(
        backend=hunt.held.backend.name,
        versions=dict(hunt.held.backend.versions),
        seed=None if args.replay else args.seed,
        seconds=monotonic() - start,
        cpu=_cpu_seconds(),
        stopped=book.enough(args.stop_after),
        in_full=args.all_known,
        rules=rules,
        code=getattr(hunt.held.backend, "code_of_program", None),
    )
    say({"text": fuzz_output.text, "json": fuzz_output.as_json}[args.format](run, book))
    if args.save:
        _save(args.save, book)
    if interrupted:
        sys.stderr.write(f"hooklaw: interrupted, after {counted(book.programs, 'program')}\n")
        return Exit.BROKEN.code
    return (Exit.REGRESSION if book.new or book.unshrunk else Exit.OK).code


def _programs(args: argparse.Namespace) -> tuple[Programs, int]:
    """Return where programs come from, and how many there are to be."""
    if args.replay:
        given = Given(_read_programs(args.replay))
        return given, min(len(given.lines), len(given.lines) if args.programs is None else args.programs)
    if args.programs is None:
        return Random(args.seed), int(LONGEST) if args.minutes else PROGRAMS
    return Random(args.seed), args.programs


def _read_programs(file: str) -> list[tuple[int, Any]]:
    """Read programs, one a line; a line that is empty or begins with # is none."""
    path = OWN_CORPUS if file == CORPUS and not Path(file).exists() else Path(file)
    try:
        text = sys.stdin.read() if file == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ProgramError(f"cannot read the programs in {file}: {why}") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    given = [(number, _read_program(f"{file}:{number}", line)) for number, line in lines if line and line[0] != "#"]
    if not given:
        raise ProgramError(f"{file} holds no program: it has one in each line, as --save writes them")
    return given


def _read_program(place: str, line: str) -> Any:
    try:
        program = parse(line)
    except ProgramError as error:
        raise ProgramError(f"{place}: {error}") from error
    for one in program:
        if one.op not in OPERATIONS:
            raise ProgramError(
                f"{place}: no instruction is called {one.op!r}: there are {', '.join(sorted(OPERATIONS))}"
            )
    return program


def _check_use(held: Held) -> None:
    backend = held.backend
    lacking = sorted(ALWAYS - frozenset(backend.capabilities))
    if lacking:
        raise ProgramError(f"no program can be run on {held.spec!r}, which lacks {', '.join(lacking)}")


def _check_room(path: Path) -> None:
    """Know before anything runs that there will be a place to save."""
    try:
        make_room(path)
        path.open("a").close()
    except OSError as error:
        raise OutputError(f"cannot save programs in {path}: {error.strerror}") from error


def _save(path: Path, book: Book) -> None:
    """Append each new shrunk program that the file does not hold."""
    try:
        there = set(path.read_text(encoding="utf-8").splitlines())
        lines = [dump(one.program) for one in book.findings.values() if one.shrunk]
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines if line not in there)
    except OSError as error:
        raise OutputError(f"cannot save programs in {path}: {error.strerror}") from error


def _cpu_seconds() -> float:
    """Return what the processes that ended have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Progress:
    """One line that is rewritten on a terminal, a line now and then elsewhere."""

    def __init__(self, spec: str, book: Book, start: float) -> None:
        self._spec, self._book, self._start = spec, book, start
        self._live = sys.stderr.isatty()
        self._last = start

    def tick(self, done: int) -> None:
        """Say how far it is, if it is time to."""
        now = monotonic()
        if now - self._last < (0.0 if self._live else EVERY):
            return
        self._last = now
        rate = done / (now - self._start)
        found = f"{len(self._book.known)} known, {len(self._book.new)} new"
        line = f"{self._spec}: {counted(done, 'program')}, {rate:.0f}/s, {found}"
        sys.stderr.write(f"\r\x1b[K{line}" if self._live else f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
