"""`hooklaw repro` and `hooklaw findings` print scripts that show, in torch alone, what does not hold."""

import json
import subprocess
import sys

import pytest

from helpers import complaint
from hooklaw.backend.loading import load
from hooklaw.law.collection import load_rules
from hooklaw.repro import script_of

pytest.importorskip("torch")


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
