"""The expectation files that hooklaw ships, as a gate needs them: each entry says why, and what is seen."""

from pathlib import Path

import pytest

from hooklaw.law.collection import load_rules
from hooklaw.results import expectations, records
from hooklaw.results.looks import VOLATILE, shows
from hooklaw.results.verdict import Outcome
from hooklaw_reports import published

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "backends" / "hooklaw_backends" / "expectations").glob("*.toml"))
HOW = "run the backend with --results=FILE, then `hooklaw expect update FILE` writes saw"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_says_what_is_seen(path):
    """No entry of a run without a condition is stale, whatever the version or the device."""
    found = expectations.read(path, load_rules(), None)

    assert [f"{one.file}:{one.line}: {one.rule} {one.why}" for one in (*found.stale, *found.unclear)] == [], HOW


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_says_what_is_seen_everywhere(path):
    """No phrase has an address, a path or a line number, which another machine would not show."""
    entries = expectations.load(path).entries
    bad = {phrase for entry in entries for phrase in entry.saw if VOLATILE.search(phrase) or len(phrase) < 5}

    assert bad == set()


@pytest.mark.parametrize("version", ["2.4.1", "2.15.0"])
def test_looks_the_same_in_other_versions(version):
    """What published runs of the oldest and the newest torch saw is what the entries say."""
    (path,) = published.FOLDER.glob(f"*-torch-eager-{version}.jsonl")
    (run,) = records.read(path)
    (file,) = (path for path in FILES if path.stem == "torch-eager")
    known = expectations.read(file, load_rules(), {**run.header.versions, "device": "cpu"}).known
    failed = {rule: result for rule, result in run.results.items() if result.outcome is Outcome.FAIL and rule in known}

    assert len(failed) > 15
    assert [rule for rule, result in failed.items() if not shows(known[rule].saw, result.seen)] == []
