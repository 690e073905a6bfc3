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


def started(words, folder, environment):
    """Start a command in a folder of its own."""
    folder.mkdir()
    command = [sys.executable, *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=-1, stderr=-1, text=True)


@pytest.fixture(scope="module")
def both(tmp_path_factory, environment):
    """Run the twenty rules once under each runner, side by side; return what each printed, its exit code and folder.

    A worker that imports torch takes seconds to replace, so one of the runners judges torch, the other the engine.
    """
    pytest.importorskip("torch", reason="a worker that dies should hold torch, and torch is not installed")
    folder = tmp_path_factory.mktemp("nasty")
    judged = ["--limit", "1", "--results=r.jsonl"]
    own = ["-c", "/dev/null", "--rootdir=.", "--import-mode=importlib", "--noconftest", "--junitxml=junit.xml"]
    plain = ["-m", "pytest", "-p", "hooklaw.plugin", *own, "--backend", "reference", *judged, str(NASTY)]
    commands = {"hooklaw run": ["-m", "hooklaw", "run", "--rules", str(NASTY), *judged], "pytest": plain}
    alone = environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    running = {name: started(words, folder / name, alone) for name, words in commands.items()}
    return {name: (run.communicate(timeout=300)[0], run.returncode, folder / name) for name, run in running.items()}


@pytest.fixture(scope="module", params=["hooklaw run", "pytest"])
def contained(request, both):
    """Return what a runner printed, its exit code, its folder and its run."""
    printed, code, folder = both[request.param]
    (run,) = records.read(folder / "r.jsonl")
    return printed, code, folder, run


def test_every_rule_has_its_result(contained):
    """Twenty rules give twenty results, and the run is complete."""
    *_, run = contained

    assert (run.header.collected, len(run.results), run.complete) == (20, 20, True)


def test_exit_code_is_one(contained):
    """A crash is a regression."""
    _, code, *_ = contained

    assert code == 1


@pytest.mark.parametrize("rule", CULPRITS)
def test_culprit_is_named(contained, rule):
    """Each culprit has its outcome, how it ended, and its own source line."""
    *_, run = contained
    result = run.results[rule]
    outcome, said = CULPRITS[rule]

    assert outcome == result.outcome
    assert said in result.detail
    assert "test_nasty.py:" in result.where


def test_last_words_are_kept(contained):
    """What a process said on stderr before it died is recorded with its death, and shown."""
    printed, *_, run = contained
    spoken = {rule: result.stderr.splitlines() for rule, result in run.results.items() if result.stderr}

    assert spoken == {"nasty.last-words": LAST_WORDS}
    assert all(line in printed for line in LAST_WORDS)


def test_the_others_pass(contained):
    """Rules that do nothing wrong are not harmed by their neighbours."""
    *_, run = contained
    others = {result.outcome for rule, result in run.results.items() if rule not in CULPRITS}

    assert {"pass"} == others


def test_the_junit_file_is_whole(both):
    """Under pytest the junit file has twenty tests, of which those that ended their process have failed."""
    *_, folder = both["pytest"]
    suite = ET.parse(folder / "junit.xml").getroot()[0]  # noqa: S314 - our own file
    failed = {case.get("name").removesuffix("[reference]") for case in suite if case.find("failure") is not None}

    assert (suite.get("tests"), failed) == ("20", DEADLY)
