"""Measure the fuzzer: `python tools/fuzz_figures.py [rate|schedules|mutants|torch-eager|reference] ...`, with torch.

All times are processor times, because machines are shared. A mutant counts as found if a program shows a new finding:
a difference that neither the law nor the backend's findings file explains. Every mutant, and every stretch of programs
on torch, runs in its own process, because some programs kill theirs.
"""

import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

from hooklaw.backend import loading
from hooklaw.fuzz.campaign import known_findings
from hooklaw.fuzz.campaign.known_findings import KnownFindings
from hooklaw.fuzz.campaign.process import Target, spare_collections
from hooklaw.fuzz.draw.builder import RandomChoices
from hooklaw.fuzz.draw.random_programs import from_seed, wide
from hooklaw.fuzz.judge.compare import SCHEDULES, follow
from hooklaw.fuzz.judge.judge import Judge, alike, engine
from hooklaw.fuzz.program import text
from hooklaw.fuzz.replay.run import Event, Replay
from hooklaw.fuzz.shrink import shrink
from hooklaw.law.collection import load_rules
from hooklaw.model.schedule import chosen_by

LIMIT = 5.0
"""The seconds of processor time within which a mutant must be found."""
DEATHS = 20
"""The number of programs of one hunt that may kill their process."""
EARLY = 1000
"""The number of programs whose late imports happen before the clock starts, as in the verb."""
MUTANTS = {"torch-eager": "backend", "reference": "of_reference"}
Pipe = Any


def stretch(out: Pipe, start: int, stop: int) -> None:
    """Send the number of programs, the time to draw, run and compare them, and how many differ."""
    judge = Judge(loading.load("torch-eager"))
    judge(from_seed(0, 0))  # torch's first pass takes a quarter of a second
    spare_collections()  # as the verb's own processes do
    began = time.process_time()
    differing = sum(judge(from_seed(1, number)) is not None for number in range(start, stop))
    out.send((stop - start, time.process_time() - began, differing))


def rate(stretches: int = 12, length: int = 500) -> str:
    """Return programs per second over the stretches whose process survived."""
    Target("torch-eager").import_early(from_seed(1, number) for number in range(EARLY))
    sent = [apart(stretch, at * length, at * length + length) for at in range(stretches)]
    whole = [messages[0] for messages in sent if isinstance(messages[0], tuple)]
    programs, seconds, differing = (sum(column) for column in zip(*whole, strict=True))
    return f"{programs / seconds:.0f} programs a second on torch-eager ({programs} programs, {differing} differ)"


def schedules(out: Pipe, programs: int = 100_000) -> None:
    """Send how often the engine, in a random order of ready Nodes, is judged wrong or cannot be followed."""
    judge_by, differing, alarms, given_up = engine(()), 0, 0, 0
    for number in range(programs):
        program = wide(RandomChoices(2, number)) if number % 2 else from_seed(2, number)
        draw = Random(number)  # noqa: S311 - not for cryptography
        events: list[Event] = []
        judge_by.reset()
        with chosen_by(draw.randrange):
            Replay(judge_by, events.append).all(program)
        usual = follow(program, judge_by, events, 1)
        reach = usual if usual.fits else follow(program, judge_by, events, SCHEDULES)
        differing += not usual.fits
        alarms += not reach.fits and reach.exhausted
        given_up += not reach.fits and not reach.exhausted
    out.send((differing, alarms, given_up))


def hunted(out: Pipe, spec: str, at: Any, spent: Any) -> None:
    """Send the number of programs and seconds until a mutant is found, and the shrunk program; start at `at`."""
    judge = Judge(loading.load(spec))
    listed = _listed(judge.backend)
    flags = {entry.flag for entry in listed}
    spare_collections()  # as the verb's own processes do
    began = time.process_time() - spent.value
    while spent.value < LIMIT:
        program = from_seed(3, at.value)
        at.value += 1
        difference = judge(program)
        spent.value = time.process_time() - began
        if spent.value > LIMIT:
            return
        if difference is None or (difference.flags and difference.flags <= flags):
            continue
        small = shrink(program, alike(judge, difference.flags), trials=300)
        if difference.flags or not any(entry.fits("differs", small) for entry in listed):
            out.send((at.value, spent.value, len(small), text(small)))
            return
        began = time.process_time() - spent.value


def _listed(backend: Any) -> KnownFindings:
    """Return the known findings of a backend, as `hooklaw fuzz` reads them."""
    path = getattr(backend, "findings", None)
    return known_findings.read(path, load_rules()) if path else KnownFindings()


def apart(task: Callable[..., None], *arguments: Any, limit: float = 60.0) -> list[Any]:
    """Run a task in its own process; return what it sent, and how it died if it did."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=task, args=(its, *arguments))
    process.start()
    its.close()
    sent: list[Any] = []
    until = time.monotonic() + limit
    try:
        while mine.poll(max(0.0, until - time.monotonic())):
            sent.append(mine.recv())
    except EOFError:
        process.join()
    if process.is_alive():
        process.kill()
        sent.append("hung")
    elif process.exitcode == 1:
        raise RuntimeError("a process failed: see its message above")
    elif process.exitcode:
        sent.append(f"died ({process.exitcode})")
    return sent


def found(spec: str) -> tuple[int, float, int, str] | None:
    """Return the number of programs and seconds until a mutant is found, and the size and text of the shrunk program.

    A program that kills its process counts for nothing, because torch itself is known to crash; the next one follows.
    """
    at, spent = multiprocessing.RawValue("q", 0), multiprocessing.RawValue("d", 0.0)
    Target(spec).import_early(from_seed(3, number) for number in range(EARLY))
    for _ in range(DEATHS):
        sent = apart(hunted, spec, at, spent, limit=60.0)
        if not sent or isinstance(sent[0], tuple):
            return sent[0] if sent else None
    return None


def mutants(of: str) -> Iterator[tuple[str, tuple[int, float, int, str] | None]]:
    """Yield the name of each mutant of a backend, and its result."""
    from hooklaw_backends import mutants as made  # noqa: PLC0415 - torch is needed for these alone

    for name in made.mutants(of):
        yield name, found(f"hooklaw_backends.mutants:{MUTANTS[of]}:{name}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _show_mutants(of: str) -> None:
    hits: dict[str, tuple[int, float, int, str]] = {}
    missed: list[str] = []
    for nr, (name, hit) in enumerate(mutants(of), start=1):
        sys.stderr.write(f"\r{nr} {name:60}")
        if hit:
            hits[name] = hit
        else:
            missed.append(name)
    many = len(hits) + len(missed)
    _say(f"mutants of {of}: {len(hits)} of {many} found within {LIMIT:g} s, {100 * len(hits) / many:.1f} %")
    programs, seconds, sizes, _ = zip(*hits.values(), strict=True)
    _say(f"  after a median of {statistics.median(programs):g} programs; the slowest took {max(seconds):.1f} s")
    _say(f"  shrunk to a median of {statistics.median(sizes):g} instructions, at most {max(sizes)}")
    near, lost = _playable(hits), _playable(missed)
    share = 100 * len(near) / (len(near) + len(lost))
    _say(f"  of those that break rules that the engine plays {len(near)} of {len(near) + len(lost)}, {share:.1f} %")
    _say(f"  of these not found: {', '.join(lost) or '-'}")
    _say(f"  of the others not found: {', '.join(name for name in missed if name not in lost) or '-'}")


def _playable(names: Iterable[str]) -> list[str]:
    """Return the mutants that break a rule that the engine can play, so that the fuzzer can find them."""
    capabilities = loading.load("reference").capabilities
    rules = [registered.rule for registered in load_rules().values()]
    return [name for name in names if any(name in rule.mutants and {*rule.needs} <= capabilities for rule in rules)]


def main() -> None:
    """Print the figures asked for, by default all."""
    warnings.simplefilter("ignore")
    asked = sys.argv[1:] or ["rate", "schedules", "mutants"]
    if "rate" in asked:
        _say(rate())
    if "schedules" in asked:
        differing, alarms, given_up = apart(schedules, limit=3000)[0]
        _say(
            f"100,000 programs in other legal orders, {differing} of which look different: "
            f"{alarms} false alarms, {given_up} given up"
        )
    for of in MUTANTS:
        if "mutants" in asked or of in asked:
            _show_mutants(of)


if __name__ == "__main__":
    main()
