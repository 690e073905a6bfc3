"""Scripts of rules, executed in a framework alone and held to what the rules do there."""

import ast
import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import pytest

import hooklaw_backends
from forked import HUGE_PAGES
from helpers import shipped_rules
from hooklaw.backend.loading import device_of, known_backends, load
from hooklaw.errors import NotRunError
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Level
from hooklaw.repro import script_of
from hooklaw.results import expectations, host, records, when
from hooklaw.results.verdict import Outcome

DRIVER = Path(__file__).parent / "data" / "run_scripts.py"
SHIPPED = Path(hooklaw_backends.__file__).with_name("expectations")

SAMPLE = 50
OF_A_COMPILER = 5
"""Fewer where each rule is compiled twice."""
TOLD = re.compile(
    r"^(rank \d+: )?([\w ]+ raised \w+: ?|expected .*, raised \w+: )?(.* \.\.\. )?"
    r"|(\(\+\d+ lines?\)|\[Falsifying example: .*\])$"
)
"""What a record says before the text of an exception, and after it."""
OF_A_RUN = re.compile(r"\w+\.<locals>\.|(?<=generated_tensor_)\d+|(?<=_eager_param_base_)\d+")
"""What a message says of where a function stands, or how many tensors and parameters there were before."""
COMPLEX = re.compile(r"\(?(-?[\d.]+(?=[+-]))?([+-]?\d[\d.]*)j\)?")
"""A complex number, which a record has as a pair."""
ABRIDGED = re.compile(r", '\.\.\. \d+ values'\].*", re.DOTALL)
"""What a record leaves out of a long list."""
OTHER_TEXT = re.compile(r"raises should be \S+ saying (.+), was \w+: ")
"""What a record says of an exception with another text than the one that a rule wants."""
HERE_ALONE = {
    "torch-compile:eager": {"custom-function.saved-cleared-on-completion"},
    "torch-compile:eager+compiled-autograd+forward": {
        "custom-function.double-backward.intermediate",
        "custom-function.double-backward.context-attribute",
    },
    "paddle:to_static": {
        "checkpoint.not-kept-alive",
        "checkpoint.recomputed.in-grad-mode",
        "saved-tensor.create-graph.inner-saves",
        "saved-tensor.identity.views",
    },
    "tensorplay": {"saved-tensor.identity.large"},  # a recursion without end, which a process ends in its own way
}
"""What shows only where the compiled function reaches a trace, so that it is split in more places; without one the
second compiler of compiled autograd recurses without end."""
RACES = {
    "threads.backward.concurrent",
    "threads.backward.concurrent-hooks",
    "threads.custom-function",
    "threads.custom-function.one-graph",
}
"""What fails or dies as threads happen to meet."""
BEFORE = {"torch": ["torch.optim", "torch._dynamo", "torch.utils.checkpoint"]}
"""What the scripts of a framework import, beside itself."""
BEFORE_COMPILING = ["compiled_once", "_pytest.raises", "_pytest.recwarn"]
"""What spares each fork the first steps of a compiler, three seconds, and what it looks up for a context manager."""

NO_SCRIPTS = {"torch-eager-npy"}
"""The files of devices that --import brings: a script does not import them."""


def specs():
    """Return the name of the backend of each expectation file that is shipped, as on the command line."""
    known = sorted(known_backends(), key=len, reverse=True)
    for path in sorted(path for path in SHIPPED.glob("*.toml") if path.stem not in NO_SCRIPTS):
        name = next(name for name in known if path.stem == name or path.stem.startswith(f"{name}-"))
        argument = path.stem.removeprefix(name)[1:].replace("-cuda", ":cuda")  # a compile mode on a device
        yield f"{name}:{argument}".removesuffix(":")


def run_of(spec, hooklaw, folder, wanted):
    """Return the result of each of some rules on a backend, by its id."""
    results = folder / "results.jsonl"
    rules = "-k", " or ".join(wanted)
    done = hooklaw("run", "--backend", spec, "--limit=120", f"--results={results}", *rules, timeout=1200)
    assert done.returncode == 0, done.stderr
    (run,) = records.read(results)
    return {name: result for name, result in run.results.items() if name in wanted}


class Forks(ExitStack):
    """Executes scripts, each in a fork of a process that began with some modules.

    Backends of the same modules share that process, since a framework takes seconds to import.
    """

    def __init__(self, **variables):
        super().__init__()
        self._drivers, self._environment = {}, {**os.environ, **HUGE_PAGES, **variables}

    def endings_of(self, scripts, *modules):
        """Return how scripts end, and what each raises."""
        if modules not in self._drivers:
            command = [sys.executable, DRIVER, *modules]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            driver = subprocess.Popen(command, env=self._environment, text=True, **pipes)
            self._drivers[modules] = self.enter_context(driver)
        driver = self._drivers[modules]
        print(json.dumps(scripts), file=driver.stdin, flush=True)
        return json.loads(driver.stdout.readline())


def gist(text):
    """Return what a failure shows, in the same words whether a trace tells it or a script."""
    text = OF_A_RUN.sub("", TOLD.sub("", text.strip()).strip())
    text = ABRIDGED.sub("", re.sub(r"<object object at \w+>", "'object'", text))
    text = OTHER_TEXT.sub(r"expected \1 in: ", text)
    text = COMPLEX.sub(lambda found: str([float(found[1] or 0), float(found[2])]), text)
    if "nothing was raised" in text or "was no error" in text:
        return "nothing was raised"
    _, saw, events = text.rpartition("saw ")
    if not saw:
        return text
    if "in any order" in text:  # a script shows the labels alone
        events = ", ".join(re.findall(r"'[^']+'", events))
    elif events.startswith("["):
        values = [(repr(label), value) for label, value in first_list(events)]
        events = ", ".join(label if value is None else f"{label} with {value}" for label, value in values)
    return f"saw {events or 'nothing'}"


def first_list(text):
    """Return the list with which a text begins; what another rank raised may follow."""
    for bracket in re.finditer(r"\]", text):
        with suppress(SyntaxError):
            return ast.literal_eval(text[: bracket.end()])
    return []


def known_of(backend):
    """Return the entries of the rules that a backend is known to break, those of the files below its own included."""
    facts = when.facts({**backend.versions, **host.versions()}, device_of(backend))
    return expectations.read(backend.expectations, load_rules(), facts).known


def own_of(backend):
    """Return the rules that a backend's own file, and none below it, says that it breaks."""
    stem = backend.expectations.stem
    return {name for name, entry in known_of(backend).items() if Path(entry.file).stem == stem}


def by_chance(backend):
    """Return the rules whose outcome two runs may not share: races, and what an entry says sometimes holds."""
    return {name for name, entry in known_of(backend).items() if name in RACES or Outcome.PASS in entry.outcome}


def some_of(backend, number):
    """Return the rules that a backend's own file says it breaks, and so many that it must not break and does not."""
    known = known_of(backend)
    others = [
        name
        for name, found in shipped_rules().items()
        if name not in known
        and found.rule.level is not Level.MAY
        and not set(found.rule.needs) - set(backend.capabilities)
    ]
    return sorted([*own_of(backend), *Random(1).sample(others, min(number, len(others)))])  # noqa: S311 - any will do


def expect_endings(spec, hooklaw, forks, folder, run=None):
    """Expect each script to run to its end where its rule holds, and else to fail, with the same words, or to die.

    The rules are those of a run if one is given, else those that the backend breaks and some others.
    """
    try:
        backend = load(spec)
    except NotRunError as reason:
        pytest.skip(str(reason))
    compiles = getattr(backend, "has_frames", False)
    number = OF_A_COMPILER if compiles else SAMPLE
    results = run.results if run else run_of(spec, hooklaw, folder, some_of(backend, number))
    rules, silent = load_rules(), {"unsupported", "not-run"}
    ran = {name: result for name, result in results.items() if result.outcome not in silent}
    scripts = {name: script_of(rules[name], backend, result.detail) for name, result in ran.items()}
    broken = {name for name, result in ran.items() if result.outcome != "pass"}

    chance = by_chance(backend)

    assert own_of(backend) & ran.keys() <= broken | chance
    assert {name: scripts[name] for name in broken} == {name: ran[name].program for name in broken}
    alone = {name: scripts[name] for name in ran.keys() - HERE_ALONE.get(spec, set())}
    framework = backend.framework.__name__
    before = [*BEFORE.get(framework, ()), *(BEFORE_COMPILING if spec.startswith("torch-compile") else ())]
    ends = forks.endings_of(alone, framework, *before)
    assert {name for name in chance & ends.keys() if ends.pop(name)[0] == "error"} == set()
    assert {name: how for name, how in ends.items() if how[0] != str(ran[name].outcome)} == {}
    told = {name: (gist(ran[name].detail), gist(said)) for name, (how, said) in ends.items() if how == "fail"}
    assert {name: both for name, both in told.items() if both[0] not in both[1]} == {}
