"""The script of every rule, executed in torch alone, ends as the rule itself does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import complaint
from hooklaw.backend.loading import load
from hooklaw.law.collection import load_rules
from hooklaw.repro import script_of

torch = pytest.importorskip("torch")

DRIVER = Path(__file__).parent.parent / "data" / "run_scripts.py"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Return the outcome of every rule on torch by its id."""
    results = tmp_path_factory.mktemp("results") / "eager.jsonl"
    command = [sys.executable, "-m", "hooklaw", "run", "--backend", "torch-eager", f"--results={results}"]
    subprocess.run(command, check=True, capture_output=True)
    lines = map(json.loads, results.read_text(encoding="utf-8").splitlines())
    return {line["rule"]: line["outcome"] for line in lines if line["kind"] == "result"}


def endings_of(scripts):
    """Return how scripts end in processes of their own."""
    done = subprocess.run(
        [sys.executable, DRIVER], input=json.dumps(scripts), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_every_script_ends_as_its_rule(outcomes):
    """A script runs to its end where the rule holds, and fails where it does not."""
    backend = load("torch-eager")
    known = load_rules()
    rules = {name: known[name] for name, outcome in outcomes.items() if outcome != "unsupported"}
    endings = endings_of({name: script_of(found, backend) for name, found in rules.items()})

    assert len(endings) > 400
    assert endings == {name: outcomes[name] for name in rules}


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
