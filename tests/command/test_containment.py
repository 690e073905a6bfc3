"""Containment: a rule that ends or hangs its process costs no other rule its result, and the culprit is named."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from hooklaw.results import records

NASTY = Path(__file__).parents[1] / "data" / "nasty"
CULPRITS = {
    "nasty.segfault": ("crash", "Segmentation fault"),
    "nasty.abort": ("crash", "Aborted"),
    "nasty.kill": ("crash", "without a word"),
    "nasty.exit": ("crash", "without a word"),
    "nasty.loop": ("timeout", "within 1 s"),
    "nasty.sleep-in-c": ("timeout", "within 1 s"),
    "nasty.deadlock": ("timeout", "within 1 s"),
    "nasty.stop": ("timeout", "within 1 s"),
    "nasty.last-words": ("crash", "Aborted"),
    "nasty.raises": ("fail", "boom"),
    "nasty.recursion": ("fail", "RecursionError"),
}
DEADLY = {rule for rule, (outcome, _) in CULPRITS.items() if outcome != "fail"}
LAST_WORDS = ["the allocator is out of sorts", "terminate called without an active exception"]


@pytest.fixture(scope="module", params=["hooklaw run", "pytest"])
def contained(request, tmp_path_factory, hooklaw_command, environment):
    """Run the twenty rules once under each runner; return the finished process, its folder and the run."""
    pytest.importorskip("torch", reason="the deadlock is in torch's backward thread, and torch is not installed")
    folder = tmp_path_factory.mktemp("nasty")
    if request.param == "hooklaw run":
        done = hooklaw_command("run", "--rules", NASTY, "--limit", "1", "--results=r.jsonl", cwd=folder, timeout=300)
    else:
        own = ["-c", "/dev/null", f"--rootdir={folder}", "--import-mode=importlib", "--noconftest"]
        judged = ["--backend", "torch-eager", "--limit", "1", "--results=r.jsonl", "--junitxml=junit.xml"]
        command = [sys.executable, "-m", "pytest", "-p", "hooklaw.plugin", *own, *judged, str(NASTY)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
    (run,) = records.read(folder / "r.jsonl")
    return done, folder, run


def test_every_rule_has_its_result(contained):
    """Twenty rules give twenty results, and the run is complete."""
    _, _, run = contained

    assert (run.header.collected, len(run.results), run.complete) == (20, 20, True)


def test_exit_code_is_one(contained):
    """A crash is a regression."""
    done, _, _ = contained

    assert done.returncode == 1


@pytest.mark.parametrize("rule", CULPRITS)
def test_culprit_is_named(contained, rule):
    """Each culprit has its outcome, how it ended, and its own source line."""
    _, _, run = contained
    result = run.results[rule]
    outcome, said = CULPRITS[rule]

    assert outcome == result.outcome
    assert said in result.detail
    assert "test_nasty.py:" in result.where


def test_last_words_are_kept(contained):
    """What a process said on stderr before it died is recorded with its death, and shown."""
    done, _, run = contained
    spoken = {rule: result.stderr.splitlines() for rule, result in run.results.items() if result.stderr}

    assert spoken == {"nasty.last-words": LAST_WORDS}
    assert all(line in done.stdout for line in LAST_WORDS)


def test_the_others_pass(contained):
    """Rules that do nothing wrong are not harmed by their neighbours."""
    _, _, run = contained
    others = {result.outcome for rule, result in run.results.items() if rule not in CULPRITS}

    assert {"pass"} == others


def test_the_junit_file_is_whole(contained):
    """Under pytest the junit file has twenty tests, of which those that ended their process have failed."""
    done, folder, _ = contained
    if "-m hooklaw" in " ".join(done.args):
        pytest.skip("hooklaw run writes no junit file")
    suite = ET.parse(folder / "junit.xml").getroot()[0]  # noqa: S314 - our own file
    failed = {case.get("name").removesuffix("[torch-eager]") for case in suite if case.find("failure") is not None}

    assert (suite.get("tests"), failed) == ("20", DEADLY)
