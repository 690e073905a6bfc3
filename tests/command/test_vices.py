"""A run lets no broken adapter pass: one hook verb is broken in each of fourteen."""

import re
import sys
from pathlib import Path

import pytest

from hooklaw.results import records
from hooklaw.results.verdict import Verdict

DATA = Path(__file__).parents[1] / "data"
pytest.importorskip("torch", reason="the broken adapters are torch's, and torch is not installed")
sys.path.insert(0, str(DATA))
import vices  # noqa: E402 - needs torch and the folder

CHAPTERS = (
    "tensor-hook or node-hook or saved-tensor or retain-grad or post-accumulate or disable-hooks or module.forward"
)
"""Those of the verbs that are broken: what follows from these would also fail elsewhere, and in several processes."""
NAMES = [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in vices.VICES]


@pytest.fixture(scope="module")
def judged(tmp_path_factory, hooklaw_command):
    """Judge all of them in one process."""
    results = tmp_path_factory.mktemp("vices") / "vices.jsonl"
    named = [word for name in NAMES for word in ("--backend", f"vices:{name}")]
    words = ("--in-process", "-k", f"({CHAPTERS}) and not processes", f"--results={results}", *named)
    done = hooklaw_command("run", *words, path=[DATA], timeout=300)
    return done, {run.header.backend: run for run in records.read(results)}


def test_exit_code_is_one(judged):
    """Broken adapters make the run exit 1."""
    done, _ = judged

    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_is_caught(judged, name):
    """Each broken adapter breaks at least one rule that torch keeps, though it be a SHOULD."""
    _, runs = judged
    run = runs[f"vices:{name}"]
    broken = [rule.id for rule in run.header.rules if run.verdict(rule) is Verdict.REGRESSION]

    assert broken


def test_there_are_ten():
    """At least ten kinds of breakage are tried."""
    assert len(NAMES) >= 10
