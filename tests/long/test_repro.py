"""The script of every rule, executed in torch alone, ends as the rule itself does."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from helpers import complaint
from hooklaw.backend.loading import load
from hooklaw.law.collection import load_rules
from hooklaw.repro import script_of
from hooklaw.results import expectations, records

torch = pytest.importorskip("torch")

DRIVER = Path(__file__).parent.parent / "data" / "run_scripts.py"


SAMPLE = 50
OF_A_COMPILER = 10
"""Fewer where each rule is compiled twice."""
ADAPTERS_ALONE = {
    "saved-tensor.cycle.identity-pack.leak",
    "saved-tensor.pack.input-live",
    "saved-tensor.which.in-place",
    "saved-tensor.per-tensor.unpack-each-access",
}
"""What a compiled region breaks only where it calls the adapter's verbs, at which the compiler splits its graph."""
RACES = {"threads.backward.concurrent-hooks"}
"""What fails or dies as threads happen to meet."""
MODULES = {"torch": ["torch.optim", "torch._dynamo", "torch.utils.checkpoint"], "paddle": ["paddle"]}


def run_of(spec, folder, wanted):
    """Return the result of each of some rules on a backend, or of every rule, by its id."""
    results = folder / "results.jsonl"
    rules = ("-k", " or ".join(wanted)) if wanted else ()
    command = [sys.executable, "-m", "hooklaw", "run", "--backend", spec, f"--results={results}", *rules]
    subprocess.run(command, check=True, capture_output=True)
    (run,) = records.read(results)
    return {name: result for name, result in run.results.items() if not wanted or name in wanted}


def endings_of(scripts, framework):
    """Return how scripts end in processes of their own."""
    done = subprocess.run(
        [sys.executable, DRIVER, *MODULES[framework]],
        input=json.dumps(scripts),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def some_of(spec, number):
    """Return the rules that a backend is known to break, and so many that it is not."""
    backend = load(spec)
    known = set(expectations.read(backend.expectations, load_rules(), dict(backend.versions)).known)
    others = [
        name
        for name, found in load_rules().items()
        if name not in known and not set(found.rule.needs) - set(backend.capabilities)
    ]
    return sorted([*known, *Random(1).sample(others, number)])  # noqa: S311 - any will do


@pytest.mark.parametrize("spec", ["torch-eager", "torch-compile:aot_eager", "paddle"])
def test_every_script_ends_as_its_rule(spec, tmp_path):
    """A script runs to its end where the rule holds, and fails or dies where the rule does: the recorded one too."""
    framework = spec.split("-")[0]
    pytest.importorskip(framework)
    number = OF_A_COMPILER if spec.startswith("torch-compile") else SAMPLE
    results = run_of(spec, tmp_path, [] if spec == "torch-eager" else some_of(spec, number))
    backend, known = load(spec), load_rules()
    ran = {name: result for name, result in results.items() if result.outcome not in ("unsupported", "not-run")}
    scripts = {name: script_of(known[name], backend, result.detail) for name, result in ran.items()}
    broken = {name for name, result in ran.items() if result.outcome != "pass"}

    assert len(broken) > 20
    assert len(ran) - len(broken) >= number - 5  # some are allowed to differ
    assert {name: scripts[name] for name in broken} == {name: ran[name].program for name in broken}
    ends = endings_of(scripts, framework)
    through_the_adapter = ADAPTERS_ALONE & broken if spec.startswith("torch-compile") else set()
    assert {name for name in through_the_adapter if ends.pop(name) != "pass"} == set()
    assert {name for name in RACES & broken if ends.pop(name) not in ("fail", "crash")} == set()
    assert ends == {name: str(ran[name].outcome) for name in ends}


def test_the_verb_prints_a_script(verb):
    """`hooklaw repro` prints a script that shows a known divergence in torch alone."""
    done = verb("repro", "retain-grad.vs-node-prehook")
    shown = subprocess.run([sys.executable, "-c", done.stdout], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert shown.returncode == 1
    assert "AssertionError: y.grad should be [2.0, 2.0], was [1.0, 1.0]" in shown.stderr


def test_what_a_backend_lacks_has_no_script(verb):
    """A rule that needs what the backend lacks is refused in one sentence."""
    done = verb("repro", "save-on-cpu.cuda.moves")

    assert done.returncode == 3
    assert complaint(done).startswith("hooklaw: torch-eager lacks accelerator, which save-on-cpu.cuda.moves needs")


def test_a_property_is_shown_by_the_example_that_fails():
    """The script of a property has the example that a failure names, and else the simplest."""
    rule, eager = load_rules()["saved-tensor.identity.views"], load("torch-eager")
    named = "gradient should be 1, was 2 [Falsifying example: pair='cloned', swap=[(0, 2)], factor=None]"

    assert "pair = 'cloned'\nswap = [(0, 2)]\nfactor = None\n" in script_of(rule, eager, named)
    assert "swap = [(0, 2)]\n" not in script_of(rule, eager)


def test_findings_as_issues(hooklaw):
    """`hooklaw findings` prints what does not hold: in lines, as objects, or as a report whose program shows it."""
    text, objects, issue = (
        hooklaw("findings", "-k", "retain-grad.vs-node-prehook", "--format", form) for form in ("text", "json", "issue")
    )
    (found,) = json.loads(objects.stdout)
    program = issue.stdout.partition("```python\n")[2].partition("```")[0]
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert {done.returncode for done in (text, objects, issue)} == {0}
    assert text.stdout.startswith("retain-grad.vs-node-prehook (MUST): The retained gradient is what")
    assert "\n1 finding on torch-eager (torch " in text.stdout
    assert (found["rule"], found["program"]) == ("retain-grad.vs-node-prehook", program)
    assert "AssertionError: y.grad should be [2.0, 2.0], was [1.0, 1.0]" in shown.stderr
    for part in (
        "# This does not hold: the",
        "## Expected",
        "## Observed",
        "## Versions\n\n- torch",
        "notes/autograd.html#",
    ):
        assert part in issue.stdout


def test_nothing_found(hooklaw):
    """Where all rules hold that were asked for, that is what it says."""
    done = hooklaw("findings", "--backend", "reference", "-k", "retain-grad.vs-node-prehook", "--format", "issue")

    assert (done.returncode, done.stdout[:40]) == (0, "every rule that was judged holds on refe")
