"""Run random hook programs on a backend and on the reference engine, and report each way in which they differ.

Programs that crash or hang are contained. Each finding is shrunk and reported once; a finding is known if the backend's
findings file lists it. Exit code 1 if a finding is new.

Example:
    hooklaw fuzz --backend torch-eager --programs 100 --seed 1
"""

import argparse
import resource
import sys
from functools import partial
from pathlib import Path
from time import monotonic

from hooklaw.cli import fuzz_output, say
from hooklaw.cli.options import LONGEST, add_imports, add_limit, count, minutes, positive
from hooklaw.cli.progress import StatusLine
from hooklaw.errors import ProgramError
from hooklaw.fuzz.campaign import known_findings
from hooklaw.fuzz.campaign.findings import PART, Findings
from hooklaw.fuzz.campaign.known_findings import KnownFindings
from hooklaw.fuzz.campaign.process import LIMIT, LONG_LIMIT, Target
from hooklaw.fuzz.campaign.schedule import Campaign
from hooklaw.fuzz.campaign.tasks import Programs, of_seed
from hooklaw.fuzz.program import Program, dump, parse
from hooklaw.fuzz.replay.operations import OPERATIONS
from hooklaw.fuzz.replay.required_capabilities import ALWAYS
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Rule
from hooklaw.results.output import make_room, output_errors
from hooklaw.results.summary import counted
from hooklaw.results.verdict import Exit

PROGRAMS = 10_000
STOP_AFTER = 5
CORPUS = "corpus"
"""Names the programs that hooklaw ships, unless there is a file of that name."""
OWN_CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus.jsonl"
EVERY = 10.0
"""Seconds between two lines of progress, where the standard error is not a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--backend", default="torch-eager", metavar="NAME[:ARG]", help="default torch-eager")
    add_imports(parser)
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
        help="programs from a file of JSON lines instead, - from stdin; without FILE those that hooklaw ships",
    )
    parser.add_argument("--jobs", type=positive, default=1, metavar="J", help="processes side by side; default 1")
    parser.add_argument("--known", type=Path, metavar="FILE", help="findings file instead of the backend's own")
    parser.add_argument("--all-known", action="store_true", help="shrink and print known findings in full too")
    parser.add_argument("--no-shrink", action="store_true", help="report programs as they were drawn")
    parser.add_argument(
        "--stop-after", type=count, default=STOP_AFTER, metavar="N", help=f"new findings, 0 never; default {STOP_AFTER}"
    )
    add_limit(parser, None, f"limit of one program; {LIMIT:.0f}, or {LONG_LIMIT:.0f} compiled")
    parser.add_argument("--save", type=Path, metavar="FILE", help="append the shrunk programs, as --replay reads them")
    parser.add_argument("--format", choices=["text", "json"], default="text")


def main(args: argparse.Namespace) -> int:
    """Run the campaign, print the findings, and return the exit code."""
    if args.save:
        _check_room(args.save)
    programs, total = _programs(args)
    target = Target(args.backend, args.imports)
    _check_use(target)
    rules = {id_: found.rule for id_, found in load_rules().items()}
    path: Path | None = args.known or getattr(target.backend, "findings", None)
    entries = known_findings.read(path, rules) if path else KnownFindings()
    enough = PART * (args.stop_after or STOP_AFTER)
    campaign = Campaign(target, programs, total, args.jobs, args.limit or target.limit, enough)
    findings = Findings(campaign, entries, shrink=not args.no_shrink, in_full=args.all_known)
    return _report(args, campaign, findings, rules)


def _report(args: argparse.Namespace, campaign: Campaign, findings: Findings, rules: dict[str, Rule]) -> int:
    backend, start = campaign.target.backend, monotonic()
    interrupted = _run(args, campaign, findings, start)
    summary = fuzz_output.Summary(
        backend=backend.name,
        versions=dict(backend.versions),
        seed=None if args.replay else args.seed,
        seconds=monotonic() - start,
        cpu=_cpu_seconds(),
        stopped=findings.enough(args.stop_after),
        in_full=args.all_known,
        rules=rules,
        code=getattr(backend, "code_of_program", None),
    )
    say({"text": fuzz_output.text, "json": fuzz_output.as_json}[args.format](summary, findings))
    if args.save:
        _save(args.save, findings)
    if interrupted:
        sys.stderr.write(f"hooklaw: interrupted, after {counted(findings.programs, 'program')}\n")
        return Exit.BROKEN.code
    return (Exit.REGRESSION if findings.new or findings.unshrunk else Exit.OK).code


def _run(args: argparse.Namespace, campaign: Campaign, findings: Findings, start: float) -> bool:
    """Run the campaign; return whether it was interrupted."""
    progress = CampaignProgress(campaign.target.spec, findings, start)
    until = start + args.minutes * 60 if args.minutes else float("inf")
    try:
        for result in campaign._replace(until=until, tick=progress.tick).results():
            findings.add(result)
            if findings.enough(args.stop_after):
                break
        findings.finish()
    except KeyboardInterrupt:
        return True
    finally:
        progress.end()
    return False


def _programs(args: argparse.Namespace) -> tuple[Programs, int]:
    """Return where programs come from, and how many are judged."""
    if args.replay:
        listed = _read_programs(args.replay)
        return listed.__getitem__, len(listed) if args.programs is None else min(len(listed), args.programs)
    total = (int(LONGEST) if args.minutes else PROGRAMS) if args.programs is None else args.programs
    return partial(of_seed, args.seed), total


def _read_programs(file: str) -> list[tuple[int, Program]]:
    """Read the programs of a file, one from each line that is not empty and does not begin with #."""
    path = OWN_CORPUS if file == CORPUS and not Path(file).exists() else Path(file)
    try:
        text = sys.stdin.read() if file == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ProgramError(f"cannot read the programs in {file}: {why}") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    programs = [(number, _read_program(f"{file}:{number}", line)) for number, line in lines if line and line[0] != "#"]
    if not programs:
        raise ProgramError(f"{file} has no program: write one in each line, as --save does")
    return programs


def _read_program(place: str, line: str) -> Program:
    try:
        program = parse(line)
    except ProgramError as error:
        raise ProgramError(f"{place}: {error}") from error
    for instruction in program:
        if instruction.op not in OPERATIONS:
            operations = ", ".join(sorted(OPERATIONS))
            raise ProgramError(f"{place}: {instruction.op!r} is not an operation: there are {operations}")
    return program


def _check_use(target: Target) -> None:
    lacking = sorted(ALWAYS - frozenset(target.backend.capabilities))
    if lacking:
        raise ProgramError(f"no program can be run on {target.spec!r}, which lacks {', '.join(lacking)}")


def _check_room(path: Path) -> None:
    """Check before anything runs that the programs can be saved."""
    with output_errors(f"save programs in {path}"):
        make_room(path)
        path.open("a").close()


def _save(path: Path, findings: Findings) -> None:
    """Append each shrunk program that the file does not have."""
    with output_errors(f"save programs in {path}"):
        there = set(path.read_text(encoding="utf-8").splitlines())
        lines = [dump(finding.program) for finding in findings.values() if finding.shrunk]
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines if line not in there)


def _cpu_seconds() -> float:
    """Return the processor time of the workers that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class CampaignProgress(StatusLine):
    """Counts programs and findings: at each tick on a terminal, now and then elsewhere."""

    def __init__(self, spec: str, findings: Findings, start: float) -> None:
        super().__init__()
        self._spec, self._findings, self._start = spec, findings, start
        self._last = start

    def tick(self, done: int) -> None:
        """Write the line, if it is time to."""
        now = monotonic()
        if now - self._last < (0.0 if self._live else EVERY):
            return
        self._last = now
        rate = done / (now - self._start)
        found = f"{len(self._findings.known)} known, {len(self._findings.new)} new"
        self.say(f"{self._spec}: {counted(done, 'program')}, {rate:.0f}/s, {found}")
