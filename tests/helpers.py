"""What several tests say of the program, put once."""

import importlib
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

from hooklaw.backend import loading
from hooklaw.cli import VERBS
from hooklaw.fuzz.judge.compare import SCHEDULES, Divergence, follow, in_one, shown
from hooklaw.fuzz.judge.judge import Judge, engine
from hooklaw.law.collection import load_rules

DATA = Path(__file__).parent / "data"
TOY_RULES = DATA / "toy_rules"
KNOWN = {"rule": "toy.broken", "outcome": "fail", "reason": "the toy is a toy"}


def complaint(done):
    """Return the one sentence that the program said of its own accord; nothing else may look like a breakdown."""
    lines = done.stderr.splitlines()
    sentences = [line for line in lines if line.startswith("hooklaw: ")]
    noise = [line for line in lines if line not in sentences and not line.startswith((" ", "toy:", "broken:"))]
    if noise or len(sentences) != 1:
        raise AssertionError(f"expected one sentence, got:\n{done.stderr}")
    return sentences[0]


def diverges(program, engine, observed, schedules=SCHEDULES, stream=in_one):
    """Return None where some legal order of the engine shows what was observed, else where they differ."""
    match = follow(program, engine, observed, schedules, stream)
    return None if match.fits else Divergence(match.matched, shown(program, engine, match.path), match.exhausted)


def shipped_rules():
    """Return hooklaw's own rules by id, without those that a test has made up in this process."""
    return {
        name: found for name, found in load_rules().items() if found.function.__module__.startswith("hooklaw.rules.")
    }


def started(command, **how):
    """Start a command in a process group that signals end, even if the shell that runs the tests ignores some."""
    handlers = dict.fromkeys([signal.SIGHUP, signal.SIGTERM], signal.SIG_DFL)
    handlers[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        return subprocess.Popen(command, start_new_session=True, **how)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def examples(verb):
    """Return the lines of the help of a verb that are examples."""
    module = importlib.import_module(VERBS[verb][0])
    parts = re.split(r"^Examples?:$", module.__doc__, maxsplit=1, flags=re.MULTILINE)
    return [line.strip() for line in parts[-1].splitlines() if line.startswith("    hooklaw ")] if parts[1:] else []


def entry(**parts):
    """Write an entry of an expectation file; a part that is None is left out."""
    lines = [f"{key} = {value!r}" for key, value in (KNOWN | parts).items() if value is not None]
    return "\n".join(["[[expect]]", *lines, ""])


def ran(code, out, err):
    """Return what a verb did in the shape of a finished process."""
    return SimpleNamespace(returncode=code, stdout=out, stderr=err)


def shows_the_vice(program, name):
    """Tell whether a program shows the vice of that name, and nothing of the engine without it."""
    mutant = Judge(loading.load(f"hooklaw_backends.mutants:of_reference:{name}"))
    return mutant(program) is not None and Judge(engine(()))(program) is None
