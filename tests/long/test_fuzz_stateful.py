"""The fuzzer behind Hypothesis: its strategy, its stateful tests, what they say, and what machines share."""

import os
import subprocess
import sys
from random import Random
from unittest import SkipTest

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, find, given, settings
from hypothesis.database import DirectoryBasedExampleDatabase, MultiplexedDatabase, ReadOnlyDatabase
from hypothesis.stateful import run_state_machine_as_test

from hooklaw.errors import UnknownBackendError
from hooklaw.fuzz.campaign.process import Ending
from hooklaw.fuzz.campaign.remote import remote_backend
from hooklaw.fuzz.draw.strategies import STEPS_BY_NAME, programs
from hooklaw.fuzz.judge import invariants
from hooklaw.fuzz.program import Instruction, dump, parse
from hooklaw.fuzz.stateful import DifferenceError, ProcessDiedError, check, machine, named

MUTANT = "hooklaw_backends.mutants:of_reference:{}"
SHRUNK = "shrunk by leaving out instructions:"
X = Instruction("leaf", ("x1",), (), ((2,), "float64", True))
HOOK = Instruction("hook", ("h1",), ("x1",), (("nothing",),))
BACKWARD = Instruction("backward", (), ("x1",), (1.0, None, False))


def quick(**how):
    """Return settings with which a search is the same every time, and short: Hypothesis itself shrinks nothing."""
    usual = {"phases": [Phase.reuse, Phase.generate], "deadline": None, "suppress_health_check": list(HealthCheck)}
    return settings(**{**usual, "max_examples": 60, "database": None, "verbosity": Verbosity.normal, **how})


def search(backend, **how):
    """Run the stateful test of a backend."""
    run_state_machine_as_test(machine(backend), settings=quick(**how))


@pytest.fixture
def fails():
    """Return a function that runs the stateful test of a backend that fails, and returns the error."""

    def run(backend, **how):
        with pytest.raises((DifferenceError, ProcessDiedError)) as caught:
            search(backend, **{"max_examples": 500, **how})
        return caught.value

    return run


def smaller(error):
    """Return the program that the delta debugger made of the one in a failure."""
    note = next(one for one in error.__notes__ if one.startswith(SHRUNK))
    line = next(one for one in note.splitlines() if one.startswith("to run it again: "))
    return parse(line.removeprefix("to run it again: "))


@pytest.mark.parametrize("backend", ["reference", "torch-eager"])
def test_law_holds(backend):
    """The stateful test passes on the engine itself, and on torch, whose known departures are no failure."""
    if backend == "torch-eager":
        pytest.importorskip("torch", reason="torch is not installed")
    search(backend, max_examples=20, stateful_step_count=12)


@pytest.mark.parametrize(
    "mutant", ["hooks-run-in-reverse-order", "hooks-run-with-grad-mode-on", "tensor-hook-after-accumulation"]
)
def test_mutant_is_found(fails, mutant):
    """A wrong backend fails; the message has the program, what differs, and a smaller program that differs too."""
    error = fails(MUTANT.format(mutant))
    program = smaller(error)

    assert f"mutant {mutant} of reference shows what is neither law nor known\n  x1 = leaf(" in str(error)
    assert "   expected: " in str(error)
    assert "   observed: " in str(error)
    assert "state.begin(instructions=x1 = leaf(" in "\n".join(error.__notes__)
    assert len(program) <= 5
    with pytest.raises(DifferenceError):
        given_alone(program, MUTANT.format(mutant))


def given_alone(program, backend):
    """Judge one program as a test of Hypothesis does."""

    @quick(max_examples=1)
    @given(program=programs().map(lambda _: program))
    def test(program):
        check(program, remote_backend(backend))

    test()


def test_crash_is_a_failure_like_others(fails):
    """A program that ends the backend's process fails the test, and is shrunk; the test itself survives."""
    error = fails("dangerous:backend:Segfaults")

    assert "does not survive a program: crash SIGSEGV\n" in str(error)
    assert [one.op for one in smaller(error)] == ["leaf", "exp"]
    assert remote_backend("dangerous:backend:Segfaults").replay(smaller(error)) == Ending("crash", "SIGSEGV")
    assert isinstance(remote_backend("dangerous:backend:Segfaults").replay([X, BACKWARD]), list)


def test_what_one_machine_finds_another_runs_first(fails, tmp_path):
    """Of two runs with a database in common the second fails at once with what the first one found."""
    backend = MUTANT.format("hooks-run-in-reverse-order")
    again = [Phase.reuse]
    with pytest.raises(SkipTest):
        search(backend, database=DirectoryBasedExampleDatabase(tmp_path), phases=again)

    found = fails(backend, database=DirectoryBasedExampleDatabase(tmp_path))
    shared = MultiplexedDatabase(
        DirectoryBasedExampleDatabase(tmp_path / "own"), ReadOnlyDatabase(DirectoryBasedExampleDatabase(tmp_path))
    )
    replayed = fails(backend, database=shared, phases=again)

    assert str(replayed) == str(found)


def test_strategy_shrinks_to_what_matters():
    """Hypothesis leaves out what a property does not need: all of it, or most where a search gets stuck.

    Which one does is luck, and changes with any file: Hypothesis draws constants that it finds in the sources.
    """

    def wanted(program):
        return any(one.op == "multi_grad" for one in program)

    how = quick(max_examples=1000, phases=[Phase.generate, Phase.shrink])
    seeds = [Random(seed) for seed in range(8)]  # noqa: S311 - they are no secret
    found = sorted((find(programs(), wanted, settings=how, random=seed) for seed in seeds), key=len)

    best, middle = found[0], found[4]
    assert len(best) <= 4
    assert len(middle) <= 8
    assert best[0] == ("leaf", ("x1",), (), ((2, 2), "float64", True), 0)
    assert all(one.thread == 0 for one in best)


@quick(max_examples=50)
@given(program=programs(longest=8))
def test_programs(program):
    """A program of the strategy survives being written, begins with a leaf, and is printed as its lines."""
    assert parse(dump(program)) == program
    assert program[0].op == "leaf"
    assert repr(program).count("\n") == len(program) - 1


def test_machine_adds_all_that_the_generator_does():
    """The stateful test has a rule for each kind of instruction."""
    assert {f"add_{name}" for name in STEPS_BY_NAME} <= set(vars(machine("reference")))
    assert {"leaf", "hook", "backward", "context", "module"} <= set(STEPS_BY_NAME)


def test_what_the_backend_lacks_is_left_out():
    """Of a program only that is run which the backend supports."""
    sine = Instruction("sin", ("v1",), ("x1",))

    assert remote_backend("dangerous:backend:Poor").able([X, HOOK, sine, BACKWARD]) == (X, HOOK, BACKWARD)
    assert remote_backend("reference").able([X, HOOK, sine, BACKWARD]) == (X, HOOK, sine, BACKWARD)


def test_invariants_hold_or_say_what_differs():
    """Each invariant passes where two runs show the same, and fails where they do not."""
    runs = []

    def same(_):
        return [("h9", 1.0)]

    def counting(_):
        runs.append(1)
        return [("h9", float(len(runs)))]

    invariants.leaves_nothing_behind((X,), (X,), same)
    invariants.is_the_same_in_other_threads((X,), same)
    invariants.onlookers_change_nothing((X, HOOK), lambda program: [("h1",)] * (HOOK in program))
    with pytest.raises(invariants.InvariantError, match="depends on what ran before"):
        invariants.leaves_nothing_behind((X,), (X,), counting)
    with pytest.raises(invariants.InvariantError, match="depends on its thread"):
        invariants.is_the_same_in_other_threads((X,), lambda program: [("h9", float(program[0].thread))])
    with pytest.raises(invariants.InvariantError, match="hooks that do nothing change what others see"):
        invariants.onlookers_change_nothing((X, HOOK), lambda program: [("h9", HOOK in program)])


def test_name_of_the_backend(monkeypatch):
    """The backend is the one that is given, else that of the environment, else torch-eager."""
    monkeypatch.delenv("HOOKLAW_FUZZ_BACKEND", raising=False)
    assert named() == "torch-eager"
    monkeypatch.setenv("HOOKLAW_FUZZ_BACKEND", "reference")
    assert named() == "reference"
    assert named("paddle") == "paddle"
    with pytest.raises(UnknownBackendError):
        remote_backend("no-such")


def test_examples_have_one_key():
    """HypoFuzz and pytest name the examples of a test alike only if it has parameters."""
    from hooklaw.fuzz import test_programs as shipped

    tests = [test for name, test in vars(shipped).items() if name.startswith("test_")]

    assert len(tests) == 4
    assert all(any(mark.name == "parametrize" for mark in test.pytestmark) for test in tests)


@pytest.fixture
def shipped(tmp_path, environment):
    """Return the shipped tests as a function that runs them in plain pytest."""

    def run(backend, *args):
        command = [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={tmp_path}", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, "--pyargs", "hooklaw.fuzz.test_programs", *args],
            cwd=tmp_path,
            env={**environment, "HOOKLAW_FUZZ_BACKEND": backend, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_shipped_tests_pass(shipped):
    """The tests that are shipped run in plain pytest, on the backend that the environment names."""
    done = shipped("reference", "-k", "onlookers or behind")

    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "2 passed, 3 deselected" in done.stdout


def test_shipped_tests_refuse_an_unknown_backend(shipped):
    """A backend that is not there is one sentence, and nothing is searched."""
    done = shipped("no-such")

    assert "no backend has the name 'no-such'" in done.stdout
    assert "5 errors" in done.stdout
    assert "Traceback" not in done.stdout
