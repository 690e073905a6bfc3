"""`hooklaw folklore`: the claims, and the evidence for them, which runs."""

import importlib.metadata
import json

import msgspec
import pytest

from hooklaw.folklore import load_claims
from hooklaw.folklore.evidence import find, programs, run_program
from hooklaw.folklore.reading import TORCH

PROGRAMS = [claim for claim in load_claims() if claim.program]


@pytest.fixture(scope="module")
def _torch():
    pytest.importorskip("torch", reason="the programs are torch's, and torch is not installed")
    version = importlib.metadata.version("torch").partition("+")[0]
    if version != TORCH:
        pytest.skip(f"the claims are judged on torch {TORCH}, here is {version}")


@pytest.fixture(scope="module")
def worker(_torch):
    """Return a worker that runs programs."""
    with programs() as started:
        yield started


@pytest.mark.parametrize("claim", PROGRAMS, ids=lambda claim: claim.id)
def test_program_prints(worker, claim):
    """The program of each claim prints what the claim says it prints."""
    printed = run_program(claim, worker)

    assert ("", claim.prints) == (printed.error, printed.text)


@pytest.mark.usefixtures("_torch")
def test_rules_bear_the_verdicts_out():
    """Every rule that a claim names does on torch what the verdict says; the programs ran above."""
    rules_alone = [msgspec.structs.replace(claim, program="", prints="") for claim in load_claims()]
    found = [*find(rules_alone)]

    assert [(each.claim.id, each.faults) for each in found if each.faults] == []
    assert {rule for each in found for rule in each.rules} == {rule for claim in rules_alone for rule in claim.rules}


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("text", "2 claims: 1 false, 1 true\n4 rules and 2 programs ran; every verdict is borne out\n"),
        ("json", '"faults": []'),
        ("markdown", "| `seed0.order.six-steps` | false | borne out |"),
    ],
)
def test_run(hooklaw_command, form, said):
    """The verb runs the evidence and says what came of it."""
    done = hooklaw_command("folklore", "--run", "-k", "six-steps or retain-grad-print", "--format", form)

    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prints": "2\n"}, "the program prints '1\\n' instead of '2\\n'"),
        ({"program": "raise ValueError('no')"}, "the program fails: ValueError: no"),
        ({"program": "import os; os._exit(3)"}, "the program fails: crash"),
        (
            {"rules": ["retain-grad.vs-node-prehook"]},
            "retain-grad.vs-node-prehook: fail, so the claim is not simply true",
        ),
    ],
)
def test_evidence_that_contradicts(changed, said):
    """A program that prints something else, fails or dies, and a rule that does not hold, are said."""
    claim = next(each for each in PROGRAMS if each.verdict == "true")
    made = msgspec.structs.replace(claim, **{"rules": [], "program": "print(1)", "prints": "1\n", **changed})
    (finding,) = find([made])

    assert said in "; ".join(finding.faults)


def test_json(verb):
    """The objects of the JSON have what scripts read."""
    found = json.loads(verb("folklore", "--format", "json").stdout)

    assert {"id", "source", "claim", "verdict", "rules"} <= {*found[0]}
    assert len(load_claims()) == len(found)


def test_text(verb):
    """Several claims are a table by theme with a tally, one claim is shown whole."""
    several = verb("folklore", "seed1").stdout
    one = verb("folklore", "seed1.ex.retain-grad").stdout

    assert "Leaves, requires_grad and .grad\n  true" in several
    assert " claims: " in several
    assert "001_82223d41bcff69ef.txt" in one
    assert "after a second backward: [3.0, 2.0, 2.0, 1.0, None]" in one


def test_unknown(verb):
    """A word that no claim has is refused with a suggestion."""
    done = verb("folklore", "seed0.order.chian")

    assert done.returncode == 3
    assert "did you mean seed0.order.chain" in done.stderr
